"""The newest revision at a moment and the number of objects, in memory and in Postgres."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

from kubechronicle.eventlog.errors import BeforeHistory, Compacted, FutureMoment, FutureRevision
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres import rows, sql
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.records import Batch, Change, Key, Moment, Operation, Record, Transaction, Who

TICK = timedelta(microseconds=1)


async def put(log: Any, *names: str, operation: Operation | None = None, namespace: str = "a") -> list[Record]:
    """Append one batch with a change of each name; all have the same commit time."""
    changes = []
    for name in names:
        key = Key("configmaps", namespace, name)
        head = (await log.head()).revision
        current = await log.get_at(key, revision=head) if head else None
        kind = operation or (Operation.UPDATE if current else Operation.CREATE)
        body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}'.encode()
        expected = current.revision if current else 0
        changes.append(Change(key=key, uid=name, expected=expected, operation=kind, body=body))
    transactions = tuple(Transaction(changes=(one,), who=Who(user="u")) for one in changes)
    batch = Batch(id=uuid.uuid4(), transactions=transactions)
    result = await log.append(batch)
    return [outcome[0] for outcome in result.outcomes]


class MomentContract:
    """Subclasses provide ``log`` and ``compact``."""

    async def compact(self, log: Any, revision: int) -> None:
        raise NotImplementedError

    async def test_the_newest_revision_at_a_time(self, log: Any) -> None:
        (first,) = await put(log, "x")
        both = await put(log, "y", "z")
        (last,) = await put(log, "x")
        assert both[0].committed_at == both[1].committed_at
        for before, after in ((first, both[0]), (both[1], last)):
            for time in (before.committed_at, after.committed_at - TICK):
                if before.committed_at <= time:
                    assert await log.revision_at(time) == (before.revision, time)
        assert (await log.revision_at(last.committed_at)).revision == last.revision
        now = await log.revision_at(timedelta())
        assert now.revision == last.revision
        assert now.time >= last.committed_at
        for record in (first, *both, last):
            assert await log.moment_of(record.revision) == (record.revision, record.committed_at)

    async def test_before_the_beginning_and_in_the_future(self, log: Any) -> None:
        with pytest.raises(BeforeHistory) as empty:
            await log.revision_at(timedelta())
        assert empty.value.oldest is None
        (first,) = await put(log, "x")
        for when in (first.committed_at - TICK, timedelta(days=100_000), timedelta(hours=1)):
            with pytest.raises(BeforeHistory) as before:
                await log.revision_at(when)
            assert before.value.oldest == (first.revision, first.committed_at)
        for when, error in ((datetime.min, BeforeHistory), (datetime.max, FutureMoment)):
            with pytest.raises(error):
                await log.revision_at(when.replace(tzinfo=UTC))
        with pytest.raises(BeforeHistory):
            await log.moment_of(0)
        with pytest.raises(FutureRevision):
            await log.moment_of(2)
        with pytest.raises(FutureMoment):
            await log.revision_at(first.committed_at + timedelta(hours=1))

    async def test_compacted_revisions_have_no_moment(self, log: Any) -> None:
        records = [(await put(log, name))[0] for name in ("x", "y", "x", "y")]
        await self.compact(log, 3)
        with pytest.raises(BeforeHistory) as before:
            await log.revision_at(records[2].committed_at - TICK)
        assert before.value.oldest == (3, records[2].committed_at)
        assert (await log.revision_at(records[2].committed_at)).revision == 3
        assert (await log.revision_at(records[3].committed_at)).revision == 4
        with pytest.raises(BeforeHistory):
            await log.moment_of(2)
        assert await log.moment_of(3) == (3, records[2].committed_at)

    async def test_count_at_equals_the_length_of_list_at(self, log: Any) -> None:
        await put(log, "x", "y")
        await put(log, "x", namespace="b")
        await put(log, "y", operation=Operation.DELETE)
        await put(log, "y")
        await put(log, "x", operation=Operation.DELETE)
        head = (await log.head()).revision
        for revision in range(1, head + 1):
            for namespace in ("", "a", "b"):
                for after in (None, ("a", "x"), ("a", "y"), ("b", "x")):
                    scope: dict[str, Any] = {"revision": revision, "namespace": namespace, "after": after}
                    listed = await log.list_at("configmaps", limit=100, **scope)
                    assert await log.count_at("configmaps", **scope) == len(listed), scope
        with pytest.raises(FutureRevision):
            await log.count_at("configmaps", revision=head + 1)
        await self.compact(log, 2)
        with pytest.raises(Compacted):
            await log.count_at("configmaps", revision=1)


class TestMemoryLog(MomentContract):
    @pytest.fixture
    async def log(self) -> Any:
        return MemoryLog(MemoryStore())

    async def compact(self, log: Any, revision: int) -> None:
        log.store.compact(revision)


class TestPostgresLog(MomentContract):
    @pytest.fixture
    async def log(self, replicas: Callable[[], Awaitable[Any]]) -> Any:
        return await replicas()

    async def compact(self, log: Any, revision: int) -> None:
        await log.compact(revision)

    async def test_the_revision_at_a_time_does_not_depend_on_an_append_under_way(self, log: Any, database: str) -> None:
        """An append takes its commit time before it commits; a query about the time between waits for the commit."""
        await put(log, "x")
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y"}}'
        change = Change(key=Key("configmaps", "a", "y"), uid="y", expected=0, operation=Operation.CREATE, body=body)
        batch = Batch(id=uuid.uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="u")),))
        async with open_session(database) as appending, open_session(database) as looking:
            await appending.execute("begin")
            stamped = (await appending.fetch(sql.APPEND, *rows.batch_arguments(batch)))[0]["committed_at"]
            found: list[Moment] = []

            async def query() -> None:
                found.append(await log.revision_at(stamped + TICK))

            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(query)
                    while not (await looking.fetch("select from pg_locks where not granted")):
                        assert not found
                    await appending.execute("commit")
        assert found == [(2, stamped + TICK)]
