"""Passes that are repeated: the first one must succeed, later ones may fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.loops.retries import START_ATTEMPTS, START_DELAY, first_pass, repeat_pass
from kubechronicle.api.errors import status
from kubechronicle.eventlog.errors import LogUnavailable

RETRIED = (status.internal_error("later"), LogUnavailable("no database"), ActorCrashed("pods"))


class Passes:
    """Raises the errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.times: list[float] = []
        self.failures: list[Exception] = []
        self._errors: Iterator[Exception] = iter(errors)

    async def reconcile(self) -> None:
        self.times.append(trio.current_time())
        for error in self._errors:
            raise error


async def test_a_first_pass_is_repeated_until_it_succeeds(autojump_clock: MockClock) -> None:
    passes = Passes(*RETRIED)
    start = trio.current_time()
    await first_pass(passes.reconcile, on_error=passes.failures.append)
    assert [time - start for time in passes.times] == [0, START_DELAY, 2 * START_DELAY, 3 * START_DELAY]
    assert passes.failures == list(RETRIED)


async def test_a_first_pass_that_keeps_failing_raises(autojump_clock: MockClock) -> None:
    passes = Passes(*[LogUnavailable("no database")] * START_ATTEMPTS)
    with pytest.raises(LogUnavailable):
        await first_pass(passes.reconcile)
    assert len(passes.times) == START_ATTEMPTS


async def test_a_bug_in_the_first_pass_is_not_retried(autojump_clock: MockClock) -> None:
    passes = Passes(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await first_pass(passes.reconcile)
    assert len(passes.times) == 1


async def test_passes_follow_at_the_interval_also_after_errors(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(RETRIED[0])

    async def fail_later() -> None:
        await passes.reconcile()
        if len(passes.times) == 3:
            raise RETRIED[1]

    async with trio.open_nursery() as nursery:
        await nursery.start(run_repeatedly, fail_later, passes)
        start = trio.current_time()
        assert len(passes.times) == 2, "started after the first success"
        with caplog.at_level(logging.WARNING):
            await trio.sleep(35)
        assert [time - start for time in passes.times[2:]] == [10, 20, 30]
        assert passes.failures == list(RETRIED[:2])
        assert "things could not be reconciled, the next attempt is in 10 seconds: no database" in caplog.text
        nursery.cancel_scope.cancel()


async def run_repeatedly(reconcile: object, passes: Passes, *, task_status: trio.TaskStatus[None]) -> None:
    assert callable(reconcile)
    await repeat_pass(
        reconcile, subject="things", interval=10.0, on_error=passes.failures.append, task_status=task_status
    )
