"""The work queue of control loops: each key once, one worker at a time, retries with a delay."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.loops.work_queue import WorkQueue
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
