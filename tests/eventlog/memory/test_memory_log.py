"""The injected faults of MemoryLog; the contract suite tests it as a RevisionLog."""

from __future__ import annotations

from uuid import uuid4

import pytest
import trio
import trio.testing

from kubechronicle.eventlog.errors import Compacted, LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, Key
from kubechronicle.eventlog.testing import commit, delete, put, transaction

X = Key("pods", "a", "x")


def batch(key: Key = X, *, expected: int = 0) -> Batch:
    return Batch(id=uuid4(), transactions=(transaction(put(key, expected=expected)),))


async def test_lost_before_commit_settles_as_uncommitted() -> None:
    log, ours = MemoryLog(), batch()
    log.fail_next("append", Fault.LOST_BEFORE_COMMIT)
    with pytest.raises(OutcomeUnknown):
        await log.append(ours)
    assert await log.settle(ours) is None
    with pytest.raises(LogUnavailable):
        await log.append(ours)
    assert log.store.revision == 0


async def test_lost_after_commit_settles_as_committed() -> None:
    log, ours = MemoryLog(), batch()
    log.fail_next("append", Fault.LOST_AFTER_COMMIT)
    with pytest.raises(OutcomeUnknown):
        await log.append(ours)
    result = await log.settle(ours)
    assert result is not None
    assert (result.first, result.head) == (1, 1)


@pytest.mark.parametrize("arrives_first", [True, False])
async def test_a_straggler_commits_unless_it_was_settled_first(*, arrives_first: bool) -> None:
    log, ours = MemoryLog(), batch()
    log.fail_next("append", Fault.LOST_IN_FLIGHT)
    with pytest.raises(OutcomeUnknown):
        await log.append(ours)
    if arrives_first:
        assert log.store.deliver_straggler(ours.id)
        assert await log.settle(ours) is not None
    else:
        assert await log.settle(ours) is None
        assert not log.store.deliver_straggler(ours.id)
    assert log.store.revision == arrives_first


async def test_an_unavailable_log_changes_nothing() -> None:
    log = MemoryLog()
    log.fail_next("append", Fault.UNAVAILABLE)
    with pytest.raises(LogUnavailable):
        await log.append(batch())
    assert log.store.revision == 0
    await log.append(batch())
    assert log.calls["append"] == 2


async def test_a_held_append_has_committed_but_not_returned(nursery: trio.Nursery) -> None:
    log = MemoryLog()
    with log.hold("append.committed") as gate:
        nursery.start_soon(log.append, batch())
        await gate.wait_arrived()
        assert log.store.revision == 1


async def test_only_other_replicas_are_notified_once_for_many_appends(nursery: trio.Nursery) -> None:
    store = MemoryStore()
    ours, theirs = MemoryLog(store), MemoryLog(store)
    await ours.append(batch())
    await ours.append(batch(Key("pods", "a", "y")))
    assert not ours.notified.is_set()
    await theirs.wait_notified()
    assert not theirs.notified.is_set()


async def test_polling_backs_up_notifications(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog(poll_interval=5)
    await log.wait_notified()
    assert trio.current_time() == 5


async def test_compaction_keeps_the_state_at_its_revision() -> None:
    log = MemoryLog()
    y = Key("leases", "a", "y")
    commit(log.store, put(X, expected=0))  # 1
    commit(log.store, put(y, expected=0))  # 2
    commit(log.store, put(y, expected=2))  # 3
    commit(log.store, delete(X, expected=1))  # 4
    log.store.compact(3, resource="leases")
    record = await log.get_at(y, revision=3)
    assert record is not None
    assert record.revision == 3
    with pytest.raises(Compacted):
        await log.get_at(y, revision=2)
    assert await log.get_at(X, revision=2) is not None  # pods keep their history
    with pytest.raises(Compacted):
        await log.read(after=1, limit=10)  # 2 is gone
    assert [each.revision for each in await log.read(after=2, limit=10)] == [3, 4]
