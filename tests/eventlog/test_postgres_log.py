"""What only a real Postgres can show: races, stalls, lost connections, restarts, wrong set-ups."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogError, LogUnavailable, OutcomeUnknown, SetupError
from kubechronicle.eventlog.postgres import open_postgres_log, open_session
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Refused, Transaction, Who

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]


def create(name: str, *, body: bytes | None = None, resource: str = "pods") -> Change:
    text = body or b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"},"spec":{"replicas":3}}' % name.encode()
    return Change(key=Key(resource, "ns", name), uid="u", expected=0, operation=Operation.CREATE, body=text)


def update(record: Record, *, delete: bool = False) -> Change:
    operation = Operation.DELETE if delete else Operation.UPDATE
    return Change(key=record.key, uid="u", expected=record.revision, operation=operation, body=record.body)


def batch(*changes: Change, who: Who | None = None) -> Batch:
    who = who or Who(user="alice")
    return Batch(id=uuid.uuid4(), transactions=tuple(Transaction(changes=(change,), who=who) for change in changes))


async def put(log: Any, change: Change) -> Record:
    (outcome,) = (await log.append(batch(change))).outcomes
    assert not isinstance(outcome, Refused), outcome
    return outcome[0]  # type: ignore[no-any-return]


# What is stored


async def test_objects_can_be_queried_with_sql(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    who = Who(
        user="alice", groups=("a", "b"), extra={"k": ("v",)}, verb="create", audit_id="x-1", user_agent="k\0\udc80é"
    )
    await log.append(batch(create("a"), who=who))
    columns = "object->'spec'->>'replicas', user_name, user_groups, user_extra->'k'->>0, verb, audit_id, user_agent"
    assert run_sql(f"select {columns} from kubechronicle.log") == "3|alice|{a,b}|v|create|x-1|k�?é"


async def test_a_batch_the_database_refuses_changed_nothing_and_is_no_conflict(replicas: Opener) -> None:
    log = await replicas()
    with pytest.raises(LogError) as refused:
        await log.append(batch(create("good"), create("bad", body=b'{"not": json}')))
    assert not isinstance(refused.value, OutcomeUnknown)
    assert (await log.head()).revision == 0
    assert (await put(log, create("good"))).revision == 1


async def test_durable_even_where_the_database_says_otherwise(replicas: Opener, run_sql: RunSql) -> None:
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


@asynccontextmanager
async def open_session_of(log: Any) -> AsyncIterator[Any]:
    async with log._maintenance() as session:
        yield session


# Gapless, in commit order


async def test_many_writers_on_three_replicas_leave_no_hole(replicas: Opener) -> None:
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
            if not isinstance(outcome, Refused):
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


async def test_notify_is_sent_once_a_batch(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    heard: list[str] = []
    async with open_session_of(theirs) as session:
        await session.listen("kubechronicle", lambda _pid, payload: heard.append(payload))
        await ours.append(batch(*(create(f"n{number}") for number in range(50))))
        await ours.append(batch(create("n0"), create("n1")))  # all refused: nothing to tell
        await ours.append(batch(create("last")))
        with trio.fail_after(5):
            while heard[-1:] != ["51"]:
                await session.fetch("select 1")
    assert heard == ["50", "51"]


async def test_our_own_appends_do_not_wake_us_but_others_do(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    assert ours.notifications_work
    before = ours._listener.notifications
    await put(ours, create("a"))
    await put(theirs, create("b"))
    with trio.fail_after(5):
        while ours._listener.notifications == before:
            await ours.wait_notified()
    assert ours._listener.notifications == before + 1


async def test_that_notifications_do_not_arrive_is_told(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler in transaction mode takes LISTEN to some server connection that hears nothing for us later."""
    from kubechronicle.eventlog import postgres_listener
    from kubechronicle.eventlog.postgres import AsyncpgSession

    async def deaf(self: object, channel: str, heard: object) -> None:
        pass

    monkeypatch.setattr(AsyncpgSession, "listen", deaf)
    monkeypatch.setattr(postgres_listener, "PROOF_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING):
        async with (
            open_postgres_log(database, instance="a") as ours,
            open_postgres_log(database, instance="b") as theirs,
        ):
            assert not ours.notifications_work
            await put(theirs, create("a"))
            with trio.fail_after(5):
                while (await ours.head()).revision == 0:
                    await ours.wait_notified()
    assert "pooler" in caplog.text


# Lost connections


class Wire:
    """A TCP proxy in front of Postgres that can cut a connection at the commit."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = ""
        self.cut = ""  # "request": the next append never reaches Postgres; "answer": its answer is lost; "hold": later
        self.held: list[tuple[trio.SocketStream, bytes]] = []

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            port = listener.socket.getsockname()[1]
            self.url = f"postgresql://postgres@127.0.0.1:{port}/"
            task_status.started()

    async def _serve(self, client: trio.SocketStream) -> None:
        backend = await trio.open_tcp_stream("127.0.0.1", self.server.port)
        doomed = False
        reading = trio.CancelScope()

        async def to_server() -> None:
            nonlocal doomed
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for data in client:
                    if self.cut and b"THE CUT" in data:
                        doomed = True
                        if self.cut == "request":
                            await backend.aclose()
                        elif self.cut == "hold":
                            reading.cancel()  # the test reads what Postgres says to it
                            self.held.append((backend, bytes(data)))
                        else:
                            await backend.send_all(data)
                            continue
                        await client.aclose()
                        return
                    await backend.send_all(data)
                if not doomed:
                    await backend.aclose()

        async def to_client() -> None:
            with reading, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for data in backend:
                    if doomed:
                        await client.aclose()
                        return
                    await client.send_all(data)
                await client.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_server)
            nursery.start_soon(to_client)


@pytest.fixture
async def wire(postgres: PostgresServer, database: str) -> AsyncIterator[Wire]:
    wire = Wire(postgres)
    async with trio.open_nursery() as nursery:
        await nursery.start(wire.run)
        wire.url += database.rsplit("/", 1)[1]
        yield wire
        nursery.cancel_scope.cancel()


TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)
CUT = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"THE CUT"}}'


async def test_cut_before_the_request_arrives_settles_as_never(wire: Wire) -> None:
    async with open_postgres_log(wire.url, instance="test") as log:
        await put(log, create("before"))
        wire.cut = "request"
        ours = batch(create("a", body=CUT))
        with pytest.raises(OutcomeUnknown) as unknown:
            await log.append(ours)
        assert unknown.value.batch_id == ours.id
        assert await log.settle(ours) is None
        wire.cut = ""
        assert (await put(log, create("a", body=CUT))).revision == 2


async def test_cut_before_the_answer_settles_as_committed(wire: Wire) -> None:
    async with open_postgres_log(wire.url, instance="test") as log:
        old = await put(log, create("old"))
        wire.cut = "answer"
        ours = batch(create("a", body=CUT), create("old"), update(old))
        ours = Batch(id=ours.id, transactions=(ours.transactions[0], ours.transactions[2]))
        with pytest.raises(OutcomeUnknown):
            await log.append(ours)
        result = await log.settle(ours)
        assert result is not None
        assert [outcome[0].revision for outcome in result.outcomes] == [2, 3]
        assert [record.revision for record in await log.read(after=1, limit=5)] == [2, 3]
        assert result.outcomes[1][0].version == 2


async def test_a_straggler_cannot_commit_after_it_was_settled(wire: Wire) -> None:
    async with open_postgres_log(wire.url, instance="test") as log:
        await put(log, create("before"))
        wire.cut = "hold"
        ours = batch(create("a", body=CUT))
        with pytest.raises(OutcomeUnknown):
            await log.append(ours)
        assert await log.settle(ours) is None
        ((backend, request),) = wire.held
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            await backend.send_all(request)  # the network delivers it after all
            answer = b""
            while b"ReadyForQuery" not in answer and b"23505" not in answer:
                answer += bytes(await backend.receive_some())
        assert b"23505" in answer
        assert (await log.head()).revision == 1


async def test_settling_waits_for_a_straggler_in_flight(replicas: Opener) -> None:
    """The connection is lost while the transaction waits for the head row; it commits later."""
    ours, other = await replicas(), await replicas()
    await put(ours, create("before"))
    pending = batch(create("a"))
    async with open_session_of(other) as blocker, trio.open_nursery() as nursery:
        await blocker.execute("begin; select from kubechronicle.head for update")

        async def append() -> None:
            with pytest.raises(OutcomeUnknown):
                await ours.append(pending)

        nursery.start_soon(append)
        waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        while not (found := await blocker.fetch(waiting)):
            await trio.lowlevel.checkpoint()
        await blocker.fetch("select pg_terminate_backend($1)", found[0][0])
        while not ours._appending.closed:
            await trio.lowlevel.checkpoint()
        await blocker.execute("rollback")
    assert await ours.settle(pending) is None
    with pytest.raises(LogUnavailable):
        await ours.append(pending)


async def test_a_result_cut_in_the_middle_is_an_error_and_not_a_short_list(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    for start in range(0, 3000, 250):
        await log.append(batch(*(create(f"n{number}") for number in range(start, start + 250))))
    loaded = 0

    async def load_and_cut() -> None:
        nonlocal loaded
        async for _, records in log.load():
            loaded += len(records)
            run_sql(TERMINATE)

    with pytest.raises(LogUnavailable):
        await load_and_cut()
    assert 0 < loaded < 3000
    # and everything is there again at the next attempt
    assert sum([len(records) async for _, records in log.load()]) == 3000


async def test_reads_and_appends_survive_terminated_idle_connections(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await put(log, create("a"))
    await log.read(after=0, limit=1)
    run_sql(TERMINATE)
    assert (await log.head()).revision == 1
    with suppress(OutcomeUnknown):  # whether the loss is noticed before sending is a matter of timing
        await put(log, create("b"))
    assert (await put(log, create("c"))).revision <= 3
    with trio.fail_after(10):
        while not log.notifications_work:
            await log.wait_notified()


async def test_postgres_killed_and_restarted(postgres: PostgresServer, replicas: Opener) -> None:
    log = await replicas()
    await put(log, create("a"))
    await trio.to_thread.run_sync(postgres.kill9)
    with pytest.raises(LogUnavailable):
        await log.head()
    pending = batch(create("b"))
    with pytest.raises((LogUnavailable, OutcomeUnknown)):
        await log.append(pending)
    with pytest.raises(LogUnavailable):
        await log.settle(pending)
    with trio.fail_after(10):
        await log.wait_notified()  # never raises
    await trio.to_thread.run_sync(postgres.start)
    assert (await log.head()).revision == 1
    assert await log.settle(pending) is None
    assert (await put(log, create("b"))).revision == 2
    with trio.fail_after(20):
        while not log.notifications_work:
            await log.wait_notified()


async def test_connections_killed_at_random_lose_and_double_nothing(replicas: Opener) -> None:
    """Every batch ends as committed or as certainly not, and the log agrees with each."""
    logs = [await replicas() for _ in range(2)]
    killer = await replicas()
    acknowledged: dict[int, Key] = {}
    unknown = given_up = 0
    writing = 6

    async def until_answered(call: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await call()
            except LogUnavailable:
                await trio.lowlevel.checkpoint()

    async def write(log: Any, writer: int) -> None:
        nonlocal unknown, given_up, writing
        for turn in range(40):
            ours = batch(create(f"w{writer}-{turn}-a"), create(f"w{writer}-{turn}-b"))
            try:
                result = await until_answered(partial(log.append, ours))
            except OutcomeUnknown:
                unknown += 1
                result = await until_answered(partial(log.settle, ours))
            if result is None:
                given_up += 1
                continue
            for (record,) in result.outcomes:
                assert record.revision not in acknowledged
                acknowledged[record.revision] = record.key
        writing -= 1

    async def kill() -> None:
        async with open_session_of(killer) as session:
            while writing:
                victims = (
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                    " and query ~ 'kubechronicle.append' and pid <> pg_backend_pid() order by random() limit 1"
                )
                await session.fetch(victims)
                await session.fetch("select pg_sleep(0.01)")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            for writer in range(6):
                nursery.start_soon(write, logs[writer % 2], writer)
    head = (await logs[0].head()).revision
    found = {record.revision: record.key for record in await logs[0].read(after=0, limit=1000)}
    assert unknown > 0
    assert found == acknowledged
    assert head == len(found) == 2 * (6 * 40 - given_up)
    assert (await logs[1].verify()).problem is None


# Cancellation


async def test_a_cancelled_read_leaves_the_log_usable(replicas: Opener) -> None:
    log = await replicas()
    await put(log, create("a"))
    for _ in range(6):  # more than there are connections
        with trio.move_on_after(0.05):
            await log._pool.fetch("select pg_sleep(30)")
    assert [record.revision for record in await log.read(after=0, limit=5)] == [1]


@pytest.mark.parametrize("checkpoints", range(6))
async def test_a_cancelled_append_is_whole_or_absent(replicas: Opener, checkpoints: int) -> None:
    log = await replicas()
    await put(log, create("before"))
    ours = batch(create("a"), create("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.append, ours)
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    settled = await log.settle(ours)
    assert (await log.head()).revision == (1 if settled is None else 3)
    assert (await put(log, create("after"))).revision == (2 if settled is None else 4)


async def test_a_load_given_up_half_way_gives_its_connection_back(replicas: Opener) -> None:
    log = await replicas()
    await put(log, create("a"))
    for _ in range(6):
        loading = log.load()
        await anext(loading)
        await loading.aclose()
    assert (await log.head()).revision == 1


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


async def test_load_and_lists_cost_by_objects_and_not_by_history(replicas: Opener) -> None:
    log = await replicas()
    current = [await put(log, create(f"n{number}")) for number in range(20)]

    async def rows_read(work: Callable[[], Awaitable[object]]) -> int:
        """What Postgres fetched from the log's tables meanwhile."""
        async with open_session_of(log) as session:

            async def fetched() -> int:
                await session.fetch("select pg_stat_force_next_flush()")
                counted = (
                    "select sum(seq_tup_read + idx_tup_fetch)::bigint from pg_stat_user_tables where relname ~ '^log_'"
                )
                await session.execute("select pg_stat_clear_snapshot()")
                return int((await session.fetch(counted))[0][0])

            async with log._pool.session() as reading:  # statistics are told at the end of a transaction
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


# The operator's mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: url.rsplit("/", 1)[0] + "/nowhere", "create the database"),
        (lambda url: "http://example.com", "database URL"),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"), "URL"),
    ],
)
async def test_a_wrong_url_is_told_in_one_line(database: str, change: Callable[[str], str], message: str) -> None:
    with pytest.raises(SetupError) as told:
        async with open_postgres_log(change(database), instance="test"):
            pass
    assert message in str(told.value)
    assert "\n" not in str(told.value)


async def test_nobody_answers(postgres: PostgresServer) -> None:
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


@pytest.mark.skipif(os.environ.get("KUBECHRONICLE_SLOW") is None, reason="waits for a real five seconds")
async def test_a_transaction_stalled_for_five_seconds(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    async with open_session_of(theirs) as session, trio.open_nursery() as nursery:
        await session.execute("begin; select from kubechronicle.head for update")
        nursery.start_soon(put, ours, create("a"))
        await session.execute("select pg_sleep(5); rollback")
    assert (await ours.head()).revision == 1
