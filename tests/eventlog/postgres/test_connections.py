"""The log on Postgres with broken connections, killed servers and cancelled calls: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from log_changes import batch, create, open_session_of, put, update
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch, Key

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]


# Lost connections


class Wire:
    """A TCP proxy in front of Postgres that can cut a connection at the commit."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = ""
        # The next append: "request": it never reaches Postgres; "answer": its answer is lost; "hold": it arrives later.
        self.cut = ""
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
                            reading.cancel()  # the test reads the answer of Postgres itself
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


async def test_a_cut_before_the_request_settles_as_uncommitted(wire: Wire) -> None:
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


async def test_a_cut_before_the_answer_settles_as_committed(wire: Wire) -> None:
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
        with trio.fail_after(60), suppress(trio.BrokenResourceError):
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
    # the next attempt is complete
    assert sum([len(records) async for _, records in log.load()]) == 3000


async def test_reads_and_appends_survive_terminated_idle_connections(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await put(log, create("a"))
    await log.read(after=0, limit=1)
    run_sql(TERMINATE)
    assert (await log.head()).revision == 1
    with suppress(OutcomeUnknown):  # timing decides whether the loss is noticed before sending
        await put(log, create("b"))
    assert (await put(log, create("c"))).revision <= 3
    with trio.fail_after(60):
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
    with trio.fail_after(60):
        await log.wait_notified()  # never raises
    await trio.to_thread.run_sync(postgres.start)
    assert (await log.head()).revision == 1
    assert await log.settle(pending) is None
    assert (await put(log, create("b"))).revision == 2
    with trio.fail_after(60):
        while not log.notifications_work:
            await log.wait_notified()


async def test_connections_killed_at_random_neither_lose_nor_repeat_a_batch(replicas: Opener) -> None:
    """Every batch has a certain outcome, and the log agrees with each."""
    logs = [await replicas() for _ in range(2)]
    killer = await replicas()
    acknowledged: dict[int, Key] = {}
    unknown = given_up = 0
    writing = 6

    async def retried(call: Callable[[], Awaitable[Any]]) -> Any:
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
                result = await retried(partial(log.append, ours))
            except OutcomeUnknown:
                unknown += 1
                result = await retried(partial(log.settle, ours))
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
    for _ in range(6):  # more than the pool has connections
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


async def test_a_load_stopped_half_way_returns_its_connection(replicas: Opener) -> None:
    log = await replicas()
    await put(log, create("a"))
    for _ in range(6):
        loading = log.load()
        await anext(loading)
        await loading.aclose()
    assert (await log.head()).revision == 1


# The listener, on the connection that appends


async def test_a_full_database_does_not_drop_the_connection_for_appends(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others hold all connections but one, so no notification can be sent as a test of delivery."""
    from kubechronicle.eventlog.postgres import connection as postgres
    from kubechronicle.eventlog.postgres import listener as postgres_listener
    from kubechronicle.eventlog.postgres.session import PostgresSession
    from kubechronicle.eventlog.postgres_log import PostgresLog

    monkeypatch.setattr(postgres_listener, "CHECK_SECONDS", 0.05)
    opened: list[PostgresSession] = []
    rejected, has_room = trio.Event(), False

    async def connect() -> PostgresSession:
        if opened and not has_room:
            rejected.set()
            raise LogUnavailable("sorry, too many clients already")
        opened.append(await postgres.connect(database, application="test"))
        return opened[-1]

    log = PostgresLog(connect)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await nursery.start(log._listener.run)
            await rejected.wait()
            assert not log.notifications_work
            await put(log, create("a"))
            has_room = True
            while not log.notifications_work:
                await log.wait_notified()
        assert len(opened) == 2
        assert not opened[0].closed
        nursery.cancel_scope.cancel()
    await log.aclose()


async def test_a_query_without_an_answer_does_not_block_the_listener(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an idle connection of the pool that died unnoticed."""
    from kubechronicle.eventlog.postgres import listener as postgres_listener
    from kubechronicle.eventlog.postgres.session import SessionPool

    monkeypatch.setattr(postgres_listener, "CHECK_SECONDS", 0.2)
    fetch, calls = SessionPool.fetch, 0

    async def first_call_hangs(self: SessionPool, sql: str, *arguments: object) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            await trio.sleep_forever()
        return await fetch(self, sql, *arguments)

    monkeypatch.setattr(SessionPool, "fetch", first_call_hangs)
    with trio.fail_after(60):
        async with open_postgres_log(database, instance="test") as log:
            while not log.notifications_work:
                await log.wait_notified()
    assert calls >= 2
