"""The tail: loading, own batches from memory, others' from the log, outages, corruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog import tail
from kubechronicle.eventlog.errors import Compacted, Diverged, FutureRevision, LogCorrupt, LogUnavailable
from kubechronicle.eventlog.memory import memory_log
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Key
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.testing import commit, delete, describe_simply, open_stack, put, transaction
from kubechronicle.eventlog.views.views import Views


def pod(name: str) -> Key:
    return Key("pods", "a", name)


async def append(log: MemoryLog, *names: str) -> BatchResult:
    each = tuple(transaction(put(pod(name), expected=0)) for name in names)
    return await log.append(Batch(id=uuid4(), transactions=each))


async def test_the_tail_loads_in_chunks_before_it_reports_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_log, "LOAD_CHUNK", 3)
    log = MemoryLog()
    for number in range(10):
        commit(log.store, put(pod(str(number)), expected=0))
    commit(log.store, delete(pod("3"), expected=4))
    async with open_stack(log) as stack:
        assert stack.views.applied == 11
        assert [entry.key.name for entry in stack.views["pods"].entries()] == list("012456789")
        assert stack.views["pods"].held_since == 11
        assert stack.tail.healthy


async def test_the_progress_of_loading_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_log, "LOAD_CHUNK", 2)
    log, shown = MemoryLog(), []

    @contextmanager
    def showing() -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: shown.append((done, total))
        shown.append((0, 0))

    for number in range(5):
        commit(log.store, put(pod(str(number)), expected=0))
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda *, task_status: Tail(log, Views(describe_simply), show_loading=showing).run(task_status=task_status)
        )
        assert shown == [(2, 0), (4, 0), (5, 0), (0, 0)]
        nursery.cancel_scope.cancel()


async def test_own_batches_come_from_memory() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        await stack.tail.apply(await append(log, "x", "y"))
        await stack.tail.apply(await append(log, "z"))
        assert stack.views.applied == 3
        assert log.calls["read"] == 0


async def test_a_gap_is_read_from_the_log_and_own_batches_may_overtake_it() -> None:
    store = MemoryStore()
    ours, theirs = MemoryLog(store), MemoryLog(store)
    async with open_stack(ours) as stack:
        with ours.hold("read.read") as gate:
            await append(theirs, "theirs")
            await gate.wait_arrived()  # woken by the notification, the tail has read 1 but not applied it
            ours_result = await append(ours, "ours")
            stack.nursery.start_soon(stack.tail.apply, ours_result)
            await wait_all_tasks_blocked()
            assert stack.views.applied == 0
        await stack.tail.reach(2)
        await stack.tail.apply(ours_result)  # again: applied already
        assert [entry.key.name for entry in stack.views["pods"].entries()] == ["ours", "theirs"]


async def test_reading_skips_records_applied_meanwhile() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        with log.hold("read.read") as gate:
            first, second = await append(log, "x"), await append(log, "y")
            stack.nursery.start_soon(stack.tail.apply, second)  # a gap before it: starts a read of 1..2
            await gate.wait_arrived()
            await stack.tail.apply(first)
            assert stack.views.applied == 1
        await stack.tail.reach(2)
        assert stack.views["pods"].count() == 2


async def test_a_rejected_batch_waits_for_the_change_that_caused_it() -> None:
    store = MemoryStore()
    ours, theirs = MemoryLog(store), MemoryLog(store)
    async with open_stack(ours) as stack:
        with ours.hold("read") as gate:
            await append(theirs, "x")
            result = await append(ours, "x")
            assert result.first == result.head + 1
            with trio.move_on_after(0) as scope:
                await stack.tail.apply(result)
            assert scope.cancelled_caught
            gate.release()
            await stack.tail.apply(result)
        assert stack.views["pods"].get("a", "x") is not None


async def test_large_gaps_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "READ_CHUNK", 4)
    log = MemoryLog()
    async with open_stack(log) as stack:
        for number in range(18):
            commit(log.store, put(pod(str(number)), expected=0))
        await stack.tail.reach(18)
        assert stack.views["pods"].count() == 18


async def test_an_outage_is_reported_and_overcome(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("read", *[Fault.UNAVAILABLE] * 10)
        commit(log.store, put(pod("x"), expected=0))
        await trio.sleep(1)
        assert not stack.tail.healthy
        assert isinstance(stack.tail.last_error, LogUnavailable)
        assert stack.views.applied == 0
        await stack.tail.reach(1)
        await wait_all_tasks_blocked()
        assert stack.tail.healthy
        assert stack.tail.last_error is None


async def test_loading_is_retried_until_it_succeeds(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    commit(log.store, put(pod("x"), expected=0))
    log.fail_next("load", *[Fault.UNAVAILABLE] * 3)
    async with open_stack(log) as stack:
        assert stack.views["pods"].count() == 1


async def test_records_compacted_before_they_were_read_cause_a_reload() -> None:
    store = MemoryStore()
    ours = MemoryLog(store)
    async with open_stack(ours) as stack:
        commit(store, put(pod("gone"), expected=0))
        commit(store, put(pod("stays"), expected=0))
        await stack.tail.reach(2)
        cursor, found = stack.views.watch("pods", after=2), []

        async def follow() -> None:
            found.extend(await cursor.next_batch())

        stack.nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        with ours.hold("read"):
            commit(store, put(Key("leases", "a", "l"), expected=0))
            commit(store, delete(pod("gone"), expected=1))
            commit(store, put(Key("leases", "a", "l"), expected=3))
            store.compact(5, resource="leases")
            await wait_all_tasks_blocked()
        await stack.tail.reach(5)
        await wait_all_tasks_blocked()
        assert [entry.key.name for entry in stack.views["pods"].entries()] == ["stays"]
        assert [entry.revision for entry in stack.views["leases"].entries()] == [5]
        assert ours.calls["load"] > 2
        assert [event.revision for event in found] == [4]  # pods were not compacted: nothing is missed
        assert stack.tail.healthy


class Lying(MemoryLog):
    """Returns a head above the newest record."""

    async def head(self) -> Head:
        return Head(revision=self.store.revision + 1, compacted=0)


async def test_a_missing_newest_record_ends_the_tail() -> None:
    log = Lying()
    with pytest.RaisesGroup(LogCorrupt, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: Tail(log, Views(describe_simply)).run(task_status=task_status))
            log.notified.set()
            await trio.sleep_forever()


async def test_a_log_that_went_back_is_loaded_again() -> None:
    """As after the promotion of a standby that lacked the last commits: everybody learns what is lost."""
    log = MemoryLog()
    async with open_stack(log) as stack:
        await stack.tail.apply(await append(log, "kept"))
        await stack.tail.apply(await append(log, "lost-1", "lost-2"))
        cursor, ended = stack.views.watch("pods", after=3), []

        async def follow() -> None:
            with pytest.raises(Compacted):
                await cursor.next_batch()
            ended.append(True)

        async def wait_for_lost() -> None:
            with pytest.raises(Diverged):
                await stack.views.wait_applied(4)
            ended.append(True)

        stack.nursery.start_soon(follow)
        stack.nursery.start_soon(wait_for_lost)
        await wait_all_tasks_blocked()
        before, log.store = log.store, MemoryStore()
        log.store._hashes[0] = before._hashes[0]
        same = before._rows[0]
        log.store._now = lambda: same.committed_at
        commit(log.store, put(pod("kept"), expected=0))
        log.store._now = before._now
        commit(log.store, put(pod("other-1"), expected=0))
        commit(log.store, put(pod("other-2"), expected=0))
        commit(log.store, put(pod("other-3"), expected=0))
        lost = stack.tail.lost
        log.notified.set()
        await lost.wait()
        await wait_all_tasks_blocked()
        assert ended == [True, True]
        assert [entry.key.name for entry in stack.views["pods"].entries()] == ["kept", "other-1", "other-2", "other-3"]
        (loss,) = stack.tail.losses
        assert (loss.after, loss.until, loss.now) == (1, 3, 4)
        assert [key.name for key in loss.objects] == ["lost-1", "lost-2"]
        assert "revisions 2 to 3" in loss.summary()
        await stack.tail.apply(await append(log, "later"))
        assert stack.views.applied == 5
        assert stack.tail.healthy


async def test_a_log_that_ends_earlier_is_loaded_again() -> None:
    log = MemoryLog()
    commit(log.store, put(pod("x"), expected=0))
    async with open_stack(log) as stack:
        lost = stack.tail.lost
        log.store = MemoryStore()  # restored from a backup that is older than the applied revision
        log.notified.set()
        await lost.wait()
        assert stack.views.applied == 0
        assert stack.views["pods"].count() == 0
        assert stack.tail.losses[0].after is None


async def test_a_revision_that_does_not_exist_at_the_deadline_is_in_the_future(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        with pytest.raises(FutureRevision) as caught:
            await stack.reads.wait_applied(7, trio.current_time() + 3)
        assert trio.current_time() == 3
        assert (caught.value.requested, caught.value.current) == (7, 0)
        commit(log.store, *(put(pod(str(number)), expected=0) for number in range(7)))
        await stack.reads.wait_applied(7, trio.current_time() + 3)
