"""The contract of RevisionLog, run against MemoryLog and PostgresLog."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
import trio
from msgspec import structs

from kubechronicle.eventlog.errors import Compacted, FutureRevision, LogUnavailable
from kubechronicle.eventlog.queries import changes as chunks
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import (
    Batch,
    BatchResult,
    Change,
    Key,
    Operation,
    Record,
    Rejected,
    Transaction,
    Who,
)

Opener = Callable[[], Awaitable[Any]]

ALICE = Who(
    user="alice",
    groups=("dev", 'odd "group", with {everything}\\'),
    verb="patch",
    extra={"scopes": ("a", "b")},
    reason="ticket 42, “née”",
    cause=3,
)

CREATE, UPDATE, DELETE = Operation.CREATE, Operation.UPDATE, Operation.DELETE


def key(name: str, *, namespace: str = "default", resource: str = "configmaps") -> Key:
    return Key(resource, namespace, name)


def change(target: Key, operation: Operation, expected: int = 0, *, text: str = "") -> Change:
    body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{target.name}"}},"data":"{text}"}}'
    return Change(key=target, uid=f"uid-{target.name}", expected=expected, operation=operation, body=body.encode())


def batch(*transactions: tuple[Change, ...] | Change) -> Batch:
    return Batch(
        id=uuid.uuid4(),
        transactions=tuple(
            Transaction(changes=(one,) if isinstance(one, Change) else one, who=ALICE) for one in transactions
        ),
    )


def committed(result: BatchResult) -> list[Record]:
    """Return the records of a batch without rejections."""
    records: list[Record] = []
    for outcome in result.outcomes:
        assert not isinstance(outcome, Rejected), outcome
        records += outcome
    return records


def bare(record: Record | None) -> Record | None:
    """Return the record without the fields that reads leave out."""
    return None if record is None else structs.replace(record, who=None, decoded=None)


class LogContract:
    """Subclasses provide ``logs``, a function that opens one more replica of the same log, and ``compact``."""

    async def put(self, log: Any, name: str, **where: str) -> Record:
        """Create the object, or update it to a new text."""
        at = key(name, **where)
        current = await log.get_at(at, revision=(await log.head()).revision)
        one = change(at, UPDATE if current else CREATE, current.revision if current else 0, text=str(uuid.uuid4()))
        return committed(await log.append(batch(one)))[0]

    async def remove(self, log: Any, name: str, **where: str) -> Record:
        at = key(name, **where)
        current = await log.get_at(at, revision=(await log.head()).revision)
        return committed(await log.append(batch(change(at, DELETE, current.revision))))[0]

    # Appending

    async def test_an_empty_log(self, log: Any) -> None:
        head = await log.head()
        assert (head.revision, head.compacted, dict(head.compacted_of)) == (0, 0, {})
        assert await log.read(after=0, limit=10) == []
        assert [(loaded.revision, list(records)) async for loaded, records in log.load()] == [(0, [])]
        assert await log.list_at("configmaps", revision=0, limit=10) == []

    async def test_the_life_of_an_object(self, log: Any) -> None:
        a = key("a")
        created, other = committed(await log.append(batch(change(a, CREATE), change(key("b"), CREATE))))
        (updated,) = committed(await log.append(batch(change(a, UPDATE, created.revision))))
        (deleted,) = committed(await log.append(batch(change(a, DELETE, updated.revision))))
        (again,) = committed(await log.append(batch(change(a, CREATE))))
        summary = [
            (record.revision, record.create_revision, record.version, record.previous_revision)
            for record in (created, other, updated, deleted, again)
        ]
        assert summary == [(1, 1, 1, 0), (2, 2, 1, 0), (3, 1, 2, 1), (4, 1, 3, 3), (5, 5, 1, 0)]
        assert await log.read(after=0, limit=10) == [bare(r) for r in (created, other, updated, deleted, again)]
        assert (await log.head()).revision == 5

    async def test_append_returns_the_change_as_sent(self, log: Any) -> None:
        body = '{"apiVersion":"v1","kind":"X","metadata":{"name":"ü"},"f":1.00,"e":"\\u0000 \\u00e9 é","z":{ "a" :1}}'
        decoded = {"anything": 1}
        sent = Change(key=key("ü"), uid="u", expected=0, operation=CREATE, body=body.encode(), decoded=decoded)
        (record,) = committed(await log.append(batch(sent)))
        assert record.body == body.encode()
        assert record.decoded is decoded
        assert record.who == ALICE
        assert record.uid == "u"
        assert record.committed_at.tzinfo is UTC or record.committed_at.utcoffset() is not None
        assert (await log.read(after=0, limit=1))[0].body == body.encode()

    async def test_time_never_goes_back(self, log: Any) -> None:
        times = [(await self.put(log, f"n{number}")).committed_at for number in range(5)]
        assert times == sorted(times)

    @pytest.mark.parametrize(
        ("operation", "expected", "actual"),
        [(CREATE, 0, 1), (UPDATE, 7, 1), (DELETE, 7, 1)],
    )
    async def test_a_change_that_expects_another_revision_is_rejected(
        self, log: Any, operation: Operation, expected: int, actual: int
    ) -> None:
        await self.put(log, "a")
        ours = batch(change(key("a"), operation, expected))
        result = await log.append(ours)
        assert result.outcomes == (Rejected(key=key("a"), expected=expected, actual=actual),)
        assert (result.first, result.head) == (2, 1)
        assert (await log.head()).revision == 1

    async def test_a_change_of_an_absent_key_is_rejected(self, log: Any) -> None:
        result = await log.append(batch(change(key("a"), UPDATE, 3)))
        assert result.outcomes == (Rejected(key=key("a"), expected=3, actual=0),)

    async def test_a_transaction_is_atomic_and_the_rest_of_the_batch_commits(self, log: Any) -> None:
        await self.put(log, "taken")
        result = await log.append(
            batch(
                change(key("first"), CREATE),
                (change(key("left"), CREATE), change(key("taken"), CREATE), change(key("right"), CREATE)),
                (change(key("x"), CREATE), change(key("y"), CREATE)),
            )
        )
        first, rejected, pair = result.outcomes
        assert rejected == Rejected(key=key("taken"), expected=0, actual=1)
        assert [record.revision for record in (*first, *pair)] == [2, 3, 4]
        assert (result.first, result.head) == (2, 4)
        assert await log.get_at(key("left"), revision=4) is None

    async def test_each_change_of_a_transaction_may_have_its_own_cause(self, log: Any) -> None:
        await log.append(batch(*(change(key(name), Operation.CREATE) for name in "abc")))
        changes = tuple(change(key(name), Operation.UPDATE, place) for place, name in enumerate("abc", 1))
        given = batch((structs.replace(changes[0], cause=1), changes[1]), structs.replace(changes[2], cause=2))
        expected = [1, ALICE.cause, 2]
        assert [each.who and each.who.cause for each in committed(await log.append(given))] == expected
        alone = batch(structs.replace(changes[0], expected=4, cause=3))
        assert [each.who and each.who.cause for each in committed(await log.append(alone))] == [3]
        found = await log.changes(ChangeQuery(after=3, newest_first=False), limit=9)
        assert [record.who and record.who.cause for record, _ in found] == [*expected, 3]

    async def test_replicas_share_one_log(self, logs: Opener) -> None:
        ours, theirs = await logs(), await logs()
        await self.put(ours, "a")
        record = await self.put(theirs, "a")
        assert record.version == 2
        assert await ours.read(after=1, limit=5) == [bare(record)]

    # Unknown outcomes

    async def test_settling_a_committed_batch_returns_its_result(self, log: Any) -> None:
        await self.put(log, "taken")
        await self.put(log, "there")
        ours = batch(
            change(key("a"), CREATE),
            (change(key("c"), CREATE), change(key("taken"), CREATE)),
            change(key("there"), UPDATE, 2),
        )
        result = await log.append(ours)
        await self.put(log, "later")
        assert await log.settle(ours) == result
        assert await log.settle(ours) == result

    async def test_settling_a_batch_that_was_rejected_in_full(self, log: Any) -> None:
        ours = batch(change(key("a"), UPDATE, 9))
        result = await log.append(ours)
        assert await log.settle(ours) == result

    async def test_a_batch_settled_as_uncommitted_never_commits(self, log: Any) -> None:
        ours = batch(change(key("a"), CREATE))
        assert await log.settle(ours) is None
        with pytest.raises(LogUnavailable):
            await log.append(ours)
        assert await log.settle(ours) is None
        assert (await log.head()).revision == 0

    async def test_a_batch_commits_once(self, log: Any) -> None:
        ours = batch(change(key("a"), CREATE))
        result = await log.append(ours)
        assert await log.append(ours) == result
        assert (await log.head()).revision == 1

    # Reading

    async def test_read_continues_after_the_last_record(self, log: Any) -> None:
        written = [bare(await self.put(log, f"n{number}")) for number in range(7)]
        assert await log.read(after=0, limit=3) == written[:3]
        assert await log.read(after=3, limit=3) == written[3:6]
        assert await log.read(after=6, limit=3) == written[6:]
        assert await log.read(after=7, limit=3) == []

    async def test_reads_end_after_a_number_of_bytes(self, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each read returns a part, and says that it was cut; the parts together are the whole."""
        written = [await self.put(log, f"n{number:02}") for number in range(40)]
        last = written[-1].revision
        body = len(written[0].body)
        monkeypatch.setattr(chunks, "CHUNK_BYTES", 3 * body)

        async def all_of(read: Callable[[Any], Awaitable[Any]], after: Any, place: Callable[[Any], Any]) -> list[Any]:
            found: list[Any] = []
            parts = 0
            while True:
                part = await read(after)
                found += part
                parts += 1
                if part.is_last(100):
                    break
                after = place(part[-1])
            assert parts > 2
            return found

        changes, expected = ChangeQuery(newest_first=False), [bare(record) for record in written]
        assert await all_of(lambda after: log.read(after=after, limit=100), 0, lambda row: row.revision) == expected
        pairs = await all_of(
            lambda after: log.read_resource("configmaps", after=after, until=last, limit=100),
            0,
            lambda pair: pair[0].revision,
        )
        assert pairs == [(record, None) for record in expected]
        pairs = await all_of(
            lambda after: log.changes(replace(changes, after=after), limit=100), 0, lambda pair: pair[0].revision
        )
        assert [bare(record) for record, _ in pairs] == expected
        listed = await all_of(
            lambda after: log.list_at("configmaps", revision=last, after=after, limit=100),
            None,
            lambda row: row.key[1:],
        )
        assert listed == expected
        assert (await log.read(after=0, limit=3)).is_last(4)

    async def test_read_resource_returns_the_replaced_records(self, log: Any) -> None:
        a1 = await self.put(log, "a")
        await self.put(log, "a", resource="secrets")
        b1 = await self.put(log, "b", namespace="other")
        a2 = await self.put(log, "a")
        gone = await self.remove(log, "a")
        a3 = await self.put(log, "a")

        async def found(**scope: Any) -> list[tuple[Record, Record | None]]:
            window = {"after": 0, "until": 100, "limit": 100}
            return list(await log.read_resource("configmaps", **{**window, **scope}))

        pairs = [(a1, None), (b1, None), (a2, a1), (gone, a2), (a3, None)]
        expected = [(bare(record), bare(previous)) for record, previous in pairs]
        assert await found() == expected
        assert await found(limit=2) == expected[:2]
        assert await found(after=1, until=4) == expected[1:3]
        assert await found(namespace="other") == [expected[1]]
        assert await found(namespace="default", name="a") == [expected[0], *expected[2:]]
        assert await found(name="b") == [expected[1]]

    async def test_load_returns_all_live_objects(self, log: Any) -> None:
        for start in range(0, 2300, 100):
            await log.append(batch(*(change(key(f"n{number:05}"), CREATE) for number in range(start, start + 100))))
        changed = await self.put(log, "n00007")
        lease = await self.put(log, "lease", resource="leases.coordination.k8s.io")
        await self.remove(log, "n00011")
        heads, records = set(), []
        async for head, chunk in log.load():
            heads.add(head.revision)
            records += chunk
        assert heads == {2303}
        assert len(records) == len({record.key for record in records}) == 2300
        assert bare(changed) in records
        assert bare(lease) in records

    async def test_get_at_any_moment(self, log: Any) -> None:
        await self.put(log, "other")
        first = await self.put(log, "a")
        second = await self.put(log, "a")
        await self.remove(log, "a")
        again = await self.put(log, "a")
        states = [await log.get_at(key("a"), revision=revision) for revision in range(6)]
        assert states == [None, None, bare(first), bare(second), None, bare(again)]
        with pytest.raises(FutureRevision):
            await log.get_at(key("a"), revision=6)
        with pytest.raises(FutureRevision):
            await log.list_at("configmaps", revision=6, limit=1)

    async def test_the_order_of_lists_is_bytewise(self, log: Any) -> None:
        places = [("b", "a"), ("a", "b"), ("a", "a.b"), ("a", "a-b"), ("a-b", "a"), ("a", "B"), ("a", "ab"), ("", "z")]
        for namespace, name in places:
            await self.put(log, name, namespace=namespace)
        listed = await log.list_at("configmaps", revision=len(places), limit=100)
        assert [record.key[1:] for record in listed] == sorted(places)
        within = await log.list_at("configmaps", revision=len(places), namespace="a", limit=100)
        assert [record.key[1:] for record in within] == [place for place in sorted(places) if place[0] == "a"]

    @pytest.mark.parametrize("compacted", [0, 60])
    async def test_lists_at_every_revision(self, log: Any, compacted: int) -> None:
        """Compare every state after random changes with a model: whole, by namespace and in pages."""
        states = [dict[Key, Record]()]
        dice = random.Random(5)
        for _ in range(120):
            at = key(dice.choice("abcdef"), namespace=dice.choice("xyz"), resource=dice.choice(["events", "pods"]))
            state = dict(states[-1])
            if at in state and dice.random() < 0.4:
                operation = DELETE
            else:
                operation = UPDATE if at in state else CREATE
            expected = state[at].revision if at in state else 0
            (record,) = committed(await log.append(batch(change(at, operation, expected, text=str(len(states))))))
            state.pop(at, None)
            if operation is not DELETE:
                state[at] = bare(record)  # type: ignore[assignment]
            states.append(state)
        if compacted:
            await self.compact(log, compacted)
        for revision in range(compacted, 121):
            expected_list = [states[revision][at] for at in sorted(states[revision]) if at.resource == "pods"]
            assert await log.list_at("pods", revision=revision, limit=1000) == expected_list
            pages: list[Record] = []
            while page := await log.list_at(
                "pods", revision=revision, after=pages[-1].key[1:] if pages else None, limit=3
            ):
                pages += page
            assert pages == expected_list
            in_y = [record for record in expected_list if record.key.namespace == "y"]
            assert await log.list_at("pods", revision=revision, namespace="y", limit=1000) == in_y
            at = key("a", namespace="y", resource="events")
            assert await log.get_at(at, revision=revision) == states[revision].get(at)

    async def test_brief_changes_keep_what_they_name(self, log: Any) -> None:
        await self.put(log, "a")
        await self.put(log, "a")
        await self.remove(log, "a")
        query = ChangeQuery(newest_first=False)

        def named(record: Record) -> tuple[Any, ...]:
            who = record.who
            assert who is not None
            request = (who.user, who.verb, who.request_uri, who.audit_id)
            return record.revision, record.key, record.previous_revision, record.operation, record.body, *request

        whole = await log.changes(query, limit=10)
        for with_replaced in (True, False):
            brief = await log.changes(replace(query, brief=True, with_replaced=with_replaced), limit=10)
            assert [named(record) for record, _ in brief] == [named(record) for record, _ in whole]
            assert [record.committed_at for record, _ in brief] == [record.committed_at for record, _ in whole]
            replaced = [before for _, before in whole] if with_replaced else [None] * 3
            assert [before for _, before in brief] == replaced
        assert await log.changes(replace(query, after=3, brief=True), limit=10) == []

    # Compaction

    async def compact(self, log: Any, revision: int) -> None:
        raise NotImplementedError

    async def test_history_below_the_compacted_revision_is_gone(self, log: Any) -> None:
        old = await self.put(log, "old")
        for _ in range(3):
            await self.put(log, "a")
        await self.compact(log, 3)
        assert (await log.head()).compacted_for("configmaps") == 3
        for read in (
            log.read(after=2, limit=10),
            log.read_resource("configmaps", after=2, until=10, limit=10),
            log.get_at(key("a"), revision=2),
            log.list_at("configmaps", revision=2, limit=10),
        ):
            with pytest.raises(Compacted) as gone:
                await read
            assert (gone.value.requested, gone.value.compacted) == (2, 3)
        assert [record.revision for record in await log.read(after=3, limit=10)] == [4]
        assert await log.get_at(key("old"), revision=3) == bare(old)
        assert [record.key.name for record in await log.list_at("configmaps", revision=3, limit=10)] == ["a", "old"]
        ((record, previous),) = await log.read_resource("configmaps", after=3, until=10, limit=10)
        assert (record.revision, previous.revision) == (4, 3)

    # Notifications

    async def test_another_replicas_append_wakes(self, logs: Opener) -> None:
        ours, theirs = await logs(), await logs()
        with trio.fail_after(60):
            await ours.wait_notified()  # a notification from the start
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.put, theirs, "a")
                while (await ours.head()).revision == 0:
                    await ours.wait_notified()


class TestMemoryLog(LogContract):
    @pytest.fixture
    async def logs(self) -> Opener:
        from kubechronicle.eventlog.memory.memory_log import MemoryLog
        from kubechronicle.eventlog.memory.store import MemoryStore

        store = MemoryStore()

        async def opened() -> Any:
            return MemoryLog(store, poll_interval=0.1)

        return opened

    @pytest.fixture
    async def log(self, logs: Opener) -> Any:
        return await logs()

    async def compact(self, log: Any, revision: int) -> None:
        log.store.compact(revision)


class TestPostgresLog(LogContract):
    @pytest.fixture
    async def logs(self, replicas: Opener) -> Opener:
        return replicas

    @pytest.fixture
    async def log(self, logs: Opener) -> Any:
        return await logs()

    async def compact(self, log: Any, revision: int) -> None:
        await log.compact(revision)
