"""PostgresLog: races, stalls, notifications, costs, wrong set-ups."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import trio
from log_changes import batch, create, open_session_of, put, update
from msgspec import structs
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogError, LogUnavailable, OutcomeUnknown, SetupError
from kubechronicle.eventlog.postgres import log_reads
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Key, Record, Rejected, Who

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]


# Reads that are bounded by bytes


async def test_large_objects_after_small_ones_are_read_in_smaller_parts(
    replicas: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await replicas()
    large = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":"%s"}'
    await log.append(batch(*(create(f"small-{number}") for number in range(20))))
    bodies = [large % f"{number}".encode().zfill(30_000) for number in range(40)]
    await log.append(batch(*(create(f"large-{number}", body=body) for number, body in enumerate(bodies))))
    attempts, whole = [], log_reads._fetch_with_cursor

    async def fetch(*arguments: Any, most: int, **options: Any) -> Any:
        attempts.append(most)
        return await whole(*arguments, most=most, **options)

    monkeypatch.setattr(log_reads, "PART_BYTES", 300_000)
    monkeypatch.setattr(log_reads, "_fetch_with_cursor", fetch)
    found = await log.changes(ChangeQuery(newest_first=False), limit=100)
    assert [record.body for record, _ in found[20:]] == bodies
    assert len(found) == 60
    assert attempts == [log_reads.PART // 2, log_reads.SMALL_PART // 2]


# Stored data


async def test_objects_can_be_queried_with_sql(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    who = Who(
        user="alice", groups=("a", "b"), extra={"k": ("v",)}, verb="create", audit_id="x-1", user_agent="k\0\udc80é"
    )
    await log.append(batch(create("a"), who=who))
    columns = "object->'spec'->>'replicas', user_name, user_groups, user_extra->'k'->>0, verb, audit_id, user_agent"
    assert run_sql(f"select {columns} from kubechronicle.log") == "3|alice|{a,b}|v|create|x-1|k�?é"


async def test_a_batch_that_the_database_rejects_changes_nothing_and_is_no_conflict(replicas: Opener) -> None:
    log = await replicas()
    with pytest.raises(LogError) as rejected:
        await log.append(batch(create("good"), create("bad", body=b'{"not": json}')))
    assert not isinstance(rejected.value, OutcomeUnknown)
    assert (await log.head()).revision == 0
    assert (await put(log, create("good"))).revision == 1


async def test_commits_are_durable_even_if_the_database_default_is_not(replicas: Opener, run_sql: RunSql) -> None:
    run_sql("do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$")
    log = await replicas()
    await put(log, create("a"))
    async with open_session_of(log) as session:
        await session.execute("begin")
        arguments = (
            "gen_random_uuid(), '{1}', '{0}', '{1}', '{r}', '{n}', '{x}', '{u}'" + ", '{x}'" * 2 + ", '{\"{}\"}'"
        )
        arguments += ", '{null}'" + ", '{x}'" * 7 + ", array['{}'::json]"
        await session.fetch(f"select * from kubechronicle.append({arguments})")
        assert (await session.fetch("show synchronous_commit"))[0][0] == "on"


# Gapless, in commit order


async def test_many_writers_on_three_replicas_leave_no_gap(replicas: Opener) -> None:
    logs = [await replicas() for _ in range(3)]
    seen: list[int] = []
    writing = 9

    async def write(log: Any, number: int) -> None:
        nonlocal writing
        for turn in range(15):
            await log.append(batch(*(create(f"w{number}-{turn}-{index}") for index in range(1 + (turn + number) % 4))))
        writing -= 1

    async def tail(log: Any) -> None:
        after = 0
        while True:
            last_round = writing == 0
            while records := await log.read(after=after, limit=7):
                seen.extend(record.revision for record in records)
                after = seen[-1]
            if last_round:
                return
            await log.wait_notified()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tail, logs[0])
            for number in range(9):
                nursery.start_soon(write, logs[number % 3], number)
    head = await logs[1].head()
    assert seen == list(range(1, head.revision + 1))
    assert (await logs[0].verify()).problem is None


async def test_writers_of_one_key_succeed_one_after_the_other(replicas: Opener) -> None:
    logs = [await replicas() for _ in range(3)]
    await put(logs[0], create("a"))
    won: list[int] = []

    async def write(log: Any) -> None:
        current = await log.get_at(Key("pods", "ns", "a"), revision=(await log.head()).revision)
        for _ in range(10):
            (outcome,) = (await log.append(batch(update(current)))).outcomes
            if not isinstance(outcome, Rejected):
                won.append(outcome[0].version)
            current = await log.get_at(current.key, revision=(await log.head()).revision)

    async with trio.open_nursery() as nursery:
        for log in logs:
            nursery.start_soon(write, log)
    assert sorted(won) == list(range(2, 2 + len(won)))
    assert (await logs[0].head()).revision == 1 + len(won)


async def test_a_transaction_stalled_before_its_commit_delays_and_loses_nothing(replicas: Opener) -> None:
    ours, theirs, reader = await replicas(), await replicas(), await replicas()
    await put(ours, create("a"))
    async with open_session_of(theirs) as session:
        await session.execute("begin; select from kubechronicle.head for update")
        async with trio.open_nursery() as nursery:
            appended: list[Record] = []

            async def append() -> None:
                appended.append(await put(ours, create("b")))

            nursery.start_soon(append)
            while not await session.fetch("select from pg_locks where not granted"):
                await trio.lowlevel.checkpoint()
            assert [record.revision for record in await reader.read(after=0, limit=10)] == [1]  # readers do not wait
            await session.execute("rollback")
    assert appended[0].revision == 2


async def test_notify_is_sent_once_per_batch(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    payloads: list[str] = []
    async with open_session_of(theirs) as session:
        await session.listen("kubechronicle", lambda _pid, payload: payloads.append(payload))
        await ours.append(batch(*(create(f"n{number}") for number in range(50))))
        await ours.append(batch(create("n0"), create("n1")))  # all rejected: no notification
        await ours.append(batch(create("last")))
        with trio.fail_after(60):
            while payloads[-1:] != ["51"]:
                await session.fetch("select 1")
    assert payloads == ["50", "51"]


async def test_own_appends_do_not_wake_but_those_of_others_do(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    assert ours.notifications_work
    before = ours._listener.notifications
    await put(ours, create("a"))
    await put(theirs, create("b"))
    with trio.fail_after(60):
        while ours._listener.notifications == before:
            await ours.wait_notified()
    assert ours._listener.notifications == before + 1


async def test_missing_notifications_are_reported(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler in transaction mode passes LISTEN to a server connection that later belongs to another client."""
    from kubechronicle.eventlog.postgres import listener
    from kubechronicle.eventlog.postgres.connection import AsyncpgSession

    async def no_notifications(self: object, channel: str, on_notification: object) -> None:
        pass

    monkeypatch.setattr(AsyncpgSession, "listen", no_notifications)
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING):
        async with (
            open_postgres_log(database, instance="a") as ours,
            open_postgres_log(database, instance="b") as theirs,
        ):
            assert not ours.notifications_work
            await put(theirs, create("a"))
            with trio.fail_after(60):
                while (await ours.head()).revision == 0:
                    await ours.wait_notified()
    assert "pooler" in caplog.text


async def test_a_notification_that_came_too_late_is_tested_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine delayed the first one. The server must not poll ten times a second ever after."""
    from kubechronicle.eventlog.postgres import listener

    take, delayed = listener.Listener._on_notification, True

    def receive(self: listener.Listener, sender: int, payload: str) -> None:
        if not delayed:
            take(self, sender, payload)

    monkeypatch.setattr(listener.Listener, "_on_notification", receive)
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(listener, "CHECK_SECONDS", 0.2)
    async with open_postgres_log(database, instance="a") as log:
        assert not log.notifications_work
        monkeypatch.setattr(listener, "PROBE_SECONDS", 30.0)
        delayed = False
        with trio.fail_after(60):
            while not log.notifications_work:
                await log.wait_notified()


# Reading while writing; cost


async def test_load_is_one_snapshot_while_appends_go_on(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    for start in range(0, 2500, 250):
        await ours.append(batch(*(create(f"n{number}") for number in range(start, start + 250))))
    loaded: list[Record] = []
    heads = set()
    async for head, records in ours.load():
        heads.add(head.revision)
        loaded += records
        await put(theirs, create(f"late-{len(loaded)}"))
        await put(theirs, update(records[0], delete=True))
    assert heads == {2500}
    assert len(loaded) == 2500
    assert max(record.revision for record in loaded) == 2500


async def test_load_and_lists_cost_in_proportion_to_objects_not_to_history(replicas: Opener) -> None:
    log = await replicas()
    current = [await put(log, create(f"n{number}")) for number in range(20)]

    async def rows_read(work: Callable[[], Awaitable[object]]) -> int:
        """Count the rows that Postgres fetched from the log's tables meanwhile."""
        async with open_session_of(log) as session:

            async def fetched() -> int:
                await session.fetch("select pg_stat_force_next_flush()")
                counted = (
                    "select sum(seq_tup_read + idx_tup_fetch)::bigint from pg_stat_user_tables where relname ~ '^log_'"
                )
                await session.execute("select pg_stat_clear_snapshot()")
                return int((await session.fetch(counted))[0][0])

            async with log._pool.session() as reading:  # statistics are reported at the end of a transaction
                await reading.fetch("select pg_stat_force_next_flush()")
            before = await fetched()
            await work()
            async with log._pool.session() as reading:
                await reading.fetch("select pg_stat_force_next_flush()")
            return await fetched() - before

    async def load() -> None:
        assert sum([len(records) async for _, records in log.load()]) == 20

    async def lists() -> None:
        head = (await log.head()).revision
        assert len(await log.list_at("pods", revision=head, limit=100)) == 20

    few = [await rows_read(load), await rows_read(lists)]
    for _ in range(30):
        result = await log.append(batch(*map(update, current)))
        current = [outcome[0] for outcome in result.outcomes]
    many = [await rows_read(load), await rows_read(lists)]
    assert all(before <= 60 for before in few)
    assert all(after <= before + 20 for before, after in zip(few, many, strict=True)), (few, many)


# Mistakes of the operator


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: url.rsplit("/", 1)[0] + "/nowhere", "create the database"),
        (lambda url: "http://example.com", "database URL"),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"), "URL"),
    ],
)
async def test_a_wrong_url_is_reported_in_one_line(database: str, change: Callable[[str], str], message: str) -> None:
    with pytest.raises(SetupError) as failed:
        async with open_postgres_log(change(database), instance="test"):
            pass
    assert message in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_no_postgres_at_the_url(postgres: PostgresServer) -> None:
    with pytest.raises(LogUnavailable, match="no connection"):
        async with open_postgres_log("postgresql://127.0.0.1:1/x", instance="test"):
            pass


async def test_a_database_that_was_not_migrated(empty_database: str) -> None:
    with pytest.raises(SetupError, match="kubechronicle migrate"):
        async with open_postgres_log(empty_database, instance="test"):
            pass


async def test_errors_of_the_body_leave_unwrapped(database: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_postgres_log(database, instance="test"):
            raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with open_session(database):
            raise ZeroDivisionError


async def test_a_transaction_stalled_for_five_seconds(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    async with open_session_of(theirs) as session, trio.open_nursery() as nursery:
        await session.execute("begin; select from kubechronicle.head for update")
        nursery.start_soon(put, ours, create("a"))
        await session.execute("select pg_sleep(5); rollback")
    assert (await ours.head()).revision == 1


async def test_a_single_change_is_stored_as_one_of_several(replicas: Opener) -> None:
    """Single changes and batches have a function each; results and rows are equal."""
    who = Who(
        user="a\0b",
        uid="7",
        groups=('q"u\\o', "two, three", ""),
        extra={"k": ("v", "\ud800")},
        impersonator="root",
        verb="create",
        request_uri="/x?y",
        user_agent="ü",
        source_address="::1",
        field_manager="m",
        audit_id="id",
        reason="for a\0 “reason”",
    )
    log = await replicas()

    async def life(*others: str) -> list[tuple[Any, ...]]:
        """Create, update and delete one object, alone or in batches with others; return the results."""
        results: list[tuple[Any, ...]] = []
        names = ("a", *others)
        created = await log.append(batch(*(create(name) for name in names), who=who))
        (old,) = created.outcomes[0]
        again = await log.append(batch(*(create(name) for name in names), who=who))
        results.append((created.head - created.first, again.head - again.first, again.outcomes[0]))
        records = [outcome[0] for outcome in created.outcomes]
        updated = await log.append(batch(*map(update, records), who=who))
        stale = await log.append(batch(*map(update, records), who=who))
        results.append((stale.outcomes[0].expected - old.revision, stale.outcomes[0].actual - updated.first))
        records = [outcome[0] for outcome in updated.outcomes]
        deleted = await log.append(batch(*(update(record, delete=True) for record in records), who=who))
        for result in (created, updated, deleted):
            (record,) = result.outcomes[0]
            stored = next(row for row in await log.read(after=0, limit=100) if row.revision == record.revision)
            assert structs.replace(record, who=None, decoded=None) == stored
            results.append(
                (record.version, record.create_revision - old.revision, record.operation, record.key, record.uid)
            )
        return results

    alone = await life()
    in_batch = await life("b", "c")
    rejected = in_batch[0][2]
    assert alone[0] == (0, -1, replace(rejected, actual=1))
    assert in_batch[0][:2] == (2, -1)
    assert alone[1:] == in_batch[1:]
    async with open_session_of(log) as session:
        columns = (
            "user_name, user_uid, user_groups, user_extra::text, impersonator, verb, request_uri, user_agent, class"
        )
        rows = await session.fetch(f"select distinct {columns}, audit_id, field_manager, reason from kubechronicle.log")
        assert len(rows) == 1
        assert (await session.fetch("select count(*) from kubechronicle.live"))[0][0] == 0
        assert (await session.fetch("select count(*), count(actual) from kubechronicle.batches"))[0][:] == (10, 4)
    assert (await log.verify()).problem is None


async def test_a_single_change_is_settled_as_a_batch_of_several(replicas: Opener) -> None:
    log = await replicas()
    ours = batch(create("a"))
    assert await log.append(ours) == await log.settle(ours)
    repeated = batch(create("a"))
    assert await log.append(repeated) == await log.settle(repeated)


async def test_a_server_of_the_previous_version_works_after_the_database_was_migrated(replicas: Opener) -> None:
    """It appends a single change with append_one(), whose result has not changed."""
    log = await replicas()
    (key, body) = (created := create("a")).key, created.body.decode()
    statement = f"select * from kubechronicle.append_one({', '.join(f'${number}' for number in range(1, 20))})"
    async with open_session_of(log) as session:

        async def appended(expected: int, operation: int) -> tuple[Any, ...]:
            who = ["alice", "", ["a"], None, "", "put", "/x", "old", "::1", "m", "id"]
            arguments = [uuid4(), expected, operation, *key, "uid", *who, body]
            return tuple((await session.fetch(statement, *arguments))[0])

        first, rejected, second, third = [await appended(*each) for each in ((0, 1), (0, 1), (1, 2), (2, 3))]
    assert (first[0], *first[2:]) == (1, 0, 1, 1)
    assert (rejected[0], rejected[2]) == (1, 1)
    assert (second[0], *second[2:]) == (2, 1, 1, 2)
    assert (third[0], *third[2:]) == (3, 2, 1, 3)
    assert [(row.revision, row.committed_at) for row in await log.read(after=0, limit=10)] == [
        (row[0], row[1]) for row in (first, second, third)
    ]
    assert (await log.verify()).problem is None


async def test_a_text_of_a_batch_contains_the_separator_of_joined_texts(replicas: Opener) -> None:
    log, who = await replicas(), Who(user="a\x1fb", verb="create")
    await log.append(batch(create("a"), create("b"), who=who))
    async with open_session_of(log) as session:
        assert [row[:] for row in await session.fetch("select user_name, verb, reason from kubechronicle.log")] == [
            ("a\x1fb", "create", "")
        ] * 2
