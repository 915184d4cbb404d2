"""The work queue of control loops: each key once, one worker at a time, retries with a delay.

Passes that are repeated: a loop starts whatever comes of its first attempt, and never gives up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.loops.retries import LOG_INTERVAL, LONGEST_DELAY, each, first_pass, repeat_pass
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.api.errors import status
from kubechronicle.eventlog.errors import LogUnavailable


async def test_each_key_is_queued_once() -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=60.0)
    for key in "abab":
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    queue.done("a")
    queue.done("b")
    assert len(queue) == 0


async def test_a_key_added_during_processing_is_processed_once_more(autojump_clock: MockClock) -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=60.0)
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a")
    with pytest.raises(trio.TooSlowError), trio.fail_after(10):
        await queue.take()
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_retries_are_delayed_longer_and_longer(autojump_clock: MockClock) -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        queue.add("a")
        await queue.take()
        waits = []
        for _ in range(5):
            before = trio.current_time()
            queue.retry("a")
            await queue.take()
            waits.append(trio.current_time() - before)
        assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
        queue.done("a")
        queue.add("a")
        await queue.take()
        before = trio.current_time()
        queue.retry("a")
        await queue.take()
        assert trio.current_time() - before == 1.0, "a success resets the delay"
        nursery.cancel_scope.cancel()


async def test_a_key_that_is_added_skips_its_delay(autojump_clock: MockClock) -> None:
    queue: WorkQueue[str] = WorkQueue(first=100.0, longest=100.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        queue.add("a")
        await queue.take()
        queue.later("a", 50.0)
        queue.add("a")
        before = trio.current_time()
        assert await queue.take() == "a"
        assert trio.current_time() == before
        queue.done("a")
        with pytest.raises(trio.TooSlowError), trio.fail_after(1000):
            await queue.take()
        nursery.cancel_scope.cancel()


async def test_a_key_added_during_processing_is_not_delayed(autojump_clock: MockClock) -> None:
    queue: WorkQueue[str] = WorkQueue(first=100.0, longest=100.0)
    queue.add("a")
    await queue.take()
    queue.add("a")
    queue.retry("a")
    with trio.fail_after(1):
        assert await queue.take() == "a"


async def test_a_cancelled_worker_takes_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=60.0)
    taken: list[str] = []

    async def work() -> None:
        taken.append(await queue.take())

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def cancelled() -> None:
            with scope:
                await work()

        nursery.start_soon(cancelled)
        await wait_all_tasks_blocked()
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        scope.cancel()
        queue.add("a")
        queue.add("b")
        await wait_all_tasks_blocked()
        assert taken == ["a"]
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
    assert taken == ["a", "b"]


async def test_a_worker_retries_delays_and_finishes_keys(autojump_clock: MockClock) -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=60.0)
    start = trio.current_time()
    processed: list[tuple[str, float]] = []
    results: dict[str, list[float | Exception | None]] = {
        "fails": [LogUnavailable("no database"), None, 0.0],  # None: retried as well
        "waits": [7.0, 0.0],
        "done": [0.0],
    }

    async def reconcile(key: str) -> float | None:
        processed.append((key, trio.current_time() - start))
        result = results[key].pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        for key in results:
            queue.add(key)
        with trio.move_on_after(1000):
            await queue.work(reconcile, component="test")
        nursery.cancel_scope.cancel()
    assert processed == [("fails", 0), ("waits", 0), ("done", 0), ("fails", 1), ("fails", 3), ("waits", 7)]


async def test_a_bug_in_reconcile_ends_the_worker() -> None:
    queue: WorkQueue[str] = WorkQueue(first=1.0, longest=60.0)
    queue.add("a")

    async def reconcile(key: str) -> float | None:
        raise ValueError(key)

    with pytest.raises(ValueError, match="a"):
        await queue.work(reconcile, component="test")


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
