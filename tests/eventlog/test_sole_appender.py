"""Appending alone: reads need no query while the claim is in use, and never miss an acknowledged change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.consistency import ConsistentRead, SoleAppender
from kubechronicle.eventlog.errors import LogError, LogUnavailable, NotSoleAppender, SetupError
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres import locks as shared_appends_module
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.records import Batch, Key
from kubechronicle.eventlog.testing import Stack, commit, open_stack, put, transaction

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]


class Claimant:
    """A stack that claims to append alone."""

    def __init__(self, stack: Stack, log: RevisionLog) -> None:
        self.stack, self.postmaster_epoch = stack, PostmasterEpoch()
        self.sole = SoleAppender(log, stack.tail, self.postmaster_epoch)
        self.reads = ConsistentRead(log, stack.tail, self.sole)

    async def claimed(self) -> None:
        with trio.fail_after(30):
            while self.sole.required_revision() is None:  # noqa: ASYNC110 - the server has no event for it
                await trio.sleep(0.01)

    async def append(self, name: str) -> int:
        change = put(Key("pods", "a", name), expected=0)
        return (await self.stack.appender.append(transaction(change), deadline=trio.current_time() + 1000))[0].revision


@asynccontextmanager
async def open_alone(log: RevisionLog) -> AsyncIterator[Claimant]:
    async with open_stack(log) as stack:
        alone = Claimant(stack, log)
        stack.nursery.start_soon(alone.sole.run)
        await alone.claimed()
        yield alone


def write(store: MemoryStore, name: str) -> int:
    return commit(store, put(Key("pods", "a", name), expected=0))[0].revision


# In memory


async def test_reads_make_no_query_and_let_no_other_task_run(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_alone(log) as alone:
        queries = log.calls["head"]
        for number in range(1, 4):
            assert await alone.append(f"x{number}") == number
            with trio.testing.assert_no_checkpoints():
                assert await alone.reads.wait() == number
        assert log.calls["head"] == queries


async def test_other_appenders_are_rejected() -> None:
    log = MemoryLog()
    async with open_alone(log):
        batch = Batch(id=uuid4(), transactions=(transaction(put(Key("pods", "a", "x"), expected=0)),))
        with pytest.raises(NotSoleAppender):
            await MemoryLog(log.store).append(batch)


async def test_a_rejected_server_warns_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog()
    async with open_stack(MemoryLog(log.store)) as other:
        deadline = trio.current_time() + 1000

        async def append(name: str) -> None:
            await other.appender.append(transaction(put(Key("pods", "a", name), expected=0)), deadline=deadline)

        for warned in (1, 2):
            assert await log.claim() is not None
            for _ in range(2):
                with pytest.raises(LogUnavailable):
                    await append("x")
            assert caplog.text.count("refuses every change: another server alone appends") == warned
            log.shared_appenders = 1
            assert await log.claim() is None
            await append(f"y{warned}")
            log.shared_appenders = 0


async def test_the_claim_is_used_once_all_earlier_changes_are_applied(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.store._listeners.clear()
        write(log.store, "x")
        alone = Claimant(stack, log)
        with log.hold("read") as gate:
            stack.nursery.start_soon(alone.sole.run)
            await gate.wait_arrived()
            assert log.store.sole is log
            assert alone.sole.required_revision() is None
        await alone.claimed()
        assert await alone.reads.wait() == 1
        assert log.calls["claim"] == 1


async def test_a_lost_claim_is_replaced_by_queries_and_then_by_a_new_claim(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = MemoryLog()
    async with open_alone(log) as alone:
        log.store._listeners.clear()
        log.disconnect()
        log.store.sole = None  # as after a restart of Postgres
        queries, revision = log.calls["head"], write(log.store, "x")
        assert await alone.reads.wait() == revision
        assert log.calls["head"] > queries
        revision = write(log.store, "y")
        log.doubt_claim()
        await alone.claimed()
        queries = log.calls["head"]
        assert await alone.reads.wait() == revision
        assert log.calls["head"] == queries


async def test_the_claim_is_used_in_one_postmaster_epoch(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_alone(log) as alone:
        alone.postmaster_epoch.begin()
        assert alone.sole.required_revision() is None
        with log.hold("claim") as gate:
            log.doubt_claim()
            await gate.wait_arrived()
            alone.postmaster_epoch.begin()  # the claim may have been made in the epoch before
        await wait_all_tasks_blocked()
        assert alone.sole.required_revision() is None
        await alone.claimed()


async def test_the_claim_is_released_for_shared_appends(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_alone(log) as alone:
        log.store._listeners.clear()
        log.shared_appenders = 1
        log.doubt_claim()
        await wait_all_tasks_blocked()
        assert log.store.sole is None
        revision = write(log.store, "x")
        assert await alone.reads.wait() == revision
        log.shared_appenders = 0
        await alone.claimed()
        assert log.store.sole is log


async def test_reads_wait_for_revisions_that_history_has_returned(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_alone(log) as alone:
        with log.hold("append.committed") as gate:
            alone.stack.nursery.start_soon(alone.append, "x")
            await gate.wait_arrived()
            assert await alone.reads.wait() == 0  # no answer has contained revision 1
            assert (await log.revision_at(timedelta())).revision == 1
            assert await alone.reads.wait() == 1


STEPS = [
    "read",
    "write",
    "lose",
    "another postmaster",
    "one by hand",
    "guest",
    "guest leaves",
    "fail",
    "unknown",
    "wait",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_no_read_misses_an_acknowledged_change(steps: list[str]) -> None:
    """Changes come from this server, and from others while they may append."""

    async def main() -> None:
        log = MemoryLog()
        async with open_alone(log) as alone:
            log.store._listeners.clear()
            acknowledged, begun = 0, 0

            async def read() -> None:
                before = acknowledged
                try:
                    assert await alone.reads.wait() >= before
                except LogUnavailable:
                    return

            async def append(name: str) -> None:
                nonlocal acknowledged
                try:
                    acknowledged = max(acknowledged, await alone.append(name))
                except LogError:
                    return

            for number, step in enumerate(steps):
                if step == "read":
                    alone.stack.nursery.start_soon(read)
                elif step == "write":
                    alone.stack.nursery.start_soon(append, f"own-{number}")
                elif step in ("fail", "unknown"):
                    fault = Fault.LOST_AFTER_COMMIT if step == "unknown" else Fault.LOST_IN_FLIGHT
                    log.fail_next("append", fault)
                elif step == "lose":
                    log.disconnect()
                    log.doubt_claim()
                elif step == "another postmaster":
                    log.disconnect()
                    alone.postmaster_epoch.begin()
                    log.store.sole = None
                    log.doubt_claim()
                elif step == "one by hand":
                    log.disconnect()
                    log.store.sole = None
                elif step == "guest":
                    log.shared_appenders += 1
                    log.doubt_claim()
                elif step == "guest leaves":
                    log.shared_appenders = 0
                else:
                    begun += 1
                    await trio.sleep(begun)
                if log.store.sole is None:
                    acknowledged = max(acknowledged, write(log.store, f"other-{number}"))
                await read()
                await trio.lowlevel.checkpoint()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# In Postgres


def one(name: str) -> Batch:
    return Batch(id=uuid4(), transactions=(transaction(put(Key("pods", "a", name), expected=0)),))


def two(name: str) -> Batch:
    changes = [put(Key("pods", "a", f"{name}-{number}"), expected=0) for number in (1, 2)]
    return Batch(id=uuid4(), transactions=(transaction(*changes),))


async def test_postgres_rejects_other_appenders(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    await theirs.append(one("before"))
    assert (await ours.claim()).head.revision == 1
    for batch in (one("a"), two("b")):
        with pytest.raises(NotSoleAppender, match=r"another server runs this database .*; give that one --workers"):
            await theirs.append(batch)
    assert await theirs.claim() is None
    with pytest.raises(NotSoleAppender):  # although it has set a token
        await theirs.append(one("c"))
    with pytest.raises(SetupError, match="this database is embedded in another server"):
        await theirs.check_may_append()
    assert (await ours.append(two("d"))).head == 3
    assert (await theirs.head()).revision == 3


async def test_every_connection_of_the_claimant_may_append(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    first = await ours.claim()
    ours._appending.terminate()
    assert not first.connected()
    assert (await ours.append(one("a"))).head == 1
    with pytest.raises(NotSoleAppender):
        await theirs.append(one("b"))
    again = await ours.claim()
    assert again.head.revision == 1
    assert again.connected()


async def test_a_claim_is_void_under_another_postmaster(replicas: Opener, run_sql: RunSql) -> None:
    ours, theirs = await replicas(), await replicas()
    assert await ours.claim() is not None
    run_sql("update kubechronicle.head set sole_under = sole_under - interval '1 us'")
    await theirs.check_may_append()
    assert (await theirs.append(one("a"))).head == 1
    assert (await theirs.claim()).head.revision == 1
    assert await ours.claim() is None
    with pytest.raises(NotSoleAppender):
        await ours.append(one("b"))


async def test_a_closed_connection_is_detected_before_it_is_read(replicas: Opener, run_sql: RunSql) -> None:
    claim = await (await replicas()).claim()
    assert claim.connected()
    others = "application_name like 'kubechronicle%' and datname = current_database()"
    # The process waits for psql and reads nothing meanwhile; the server's last message stays in the socket.
    run_sql(f"select pg_terminate_backend(pid, 10000) from pg_stat_activity where {others}")
    assert not claim.connected()


async def test_postgres_shared_appends(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    async with open_alone(ours) as alone, theirs._maintenance() as session:
        await alone.append("x")
        async with shared_appends(session):
            assert alone.sole.required_revision() is None
            assert await ours.claim() is None
            assert (await theirs.append(one("y"))).head == 2
            assert await alone.reads.wait() == 2
            assert await alone.append("z") == 3
        await alone.claimed()
        with pytest.raises(NotSoleAppender):
            await theirs.append(one("a"))
        assert await alone.reads.wait() == 3


async def test_shared_appends_time_out_if_the_claim_is_kept(replicas: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = await replicas(), await replicas()
    assert await ours.claim() is not None
    monkeypatch.setattr(shared_appends_module, "PATIENCE", 0.1)
    async with theirs._maintenance() as session:
        with pytest.raises(LogUnavailable, match="does not let others append"):
            async with shared_appends(session):
                pass
        assert (await ours.append(one("x"))).head == 1
