"""Passes that are repeated: a loop starts whatever comes of its first attempt, and never gives up."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.loops.retries import LOG_INTERVAL, LONGEST_DELAY, each, first_pass, repeat_pass
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
    await first_pass(passes.reconcile, subject="things", on_error=passes.failures.append)
    assert [time - start for time in passes.times] == [0, 0.5, 1.5, 3.5]
    assert passes.failures == list(RETRIED)


async def test_a_loop_starts_after_one_attempt_and_tells_of_the_same_error_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    passes = Passes(*[LogUnavailable("no database")] * 12)
    with caplog.at_level(logging.INFO):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[None]) -> None:
                await first_pass(passes.reconcile, subject="things", task_status=task_status)

            await nursery.start(run)
            assert len(passes.times) == 1
    assert len(passes.times) == 13
    assert passes.times[-1] - passes.times[-2] == LONGEST_DELAY
    assert passes.times[-1] - passes.times[0] < LOG_INTERVAL
    said = [record.message for record in caplog.records if "things" in record.message]
    assert said == ["things could not be reconciled, trying again: no database", "things are reconciled again"]


async def test_a_bug_in_the_first_pass_is_not_retried(autojump_clock: MockClock) -> None:
    passes = Passes(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await first_pass(passes.reconcile, subject="things")
    assert len(passes.times) == 1


async def test_passes_follow_at_the_interval_and_sooner_after_errors(autojump_clock: MockClock) -> None:
    passes = Passes()

    async def fail_later() -> None:
        await passes.reconcile()
        if len(passes.times) == 3:
            raise RETRIED[1]

    async with trio.open_nursery() as nursery:
        await nursery.start(run_repeatedly, fail_later, passes)
        start = trio.current_time()
        await trio.sleep(35)
        assert [time - start for time in passes.times] == [0, 10, 20, 20.5, 30.5]
        assert passes.failures == [RETRIED[1]]
        nursery.cancel_scope.cancel()


async def run_repeatedly(reconcile: object, passes: Passes, *, task_status: trio.TaskStatus[None]) -> None:
    assert callable(reconcile)
    await repeat_pass(
        reconcile, subject="things", interval=10.0, on_error=passes.failures.append, task_status=task_status
    )


async def test_one_step_that_fails_does_not_keep_others_from_being_taken(autojump_clock: MockClock) -> None:
    taken = []

    async def step(number: int) -> None:
        taken.append(number)
        if number in (1, 2):
            raise RETRIED[number]

    for at_once in (1, 2, 10):
        taken.clear()
        with pytest.raises((type(RETRIED[1]), type(RETRIED[2]))):
            await each([lambda number=number: step(number) for number in range(5)], at_once=at_once)  # type: ignore[misc]
        assert sorted(taken) == [0, 1, 2, 3, 4]
