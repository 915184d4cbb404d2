"""ConnectionLoop: queries on a connection that listens, and the behaviour of the loop itself."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import asyncpg
import pytest
import trio
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.postgres.asyncpg_on_trio import ConnectionLoop
from kubechronicle.eventlog.postgres.connection import open_session

WITHOUT_TIMERS: Any = {"timeout": None, "max_cached_statement_lifetime": 0}


async def test_queries_on_a_connection_that_listens(postgres: PostgresServer) -> None:
    payloads: list[str] = []
    arrived = trio.Event()

    def on_notification(_pid: int, payload: str) -> None:
        payloads.append(payload)
        if payload == "last":
            arrived.set()

    async with open_session(postgres.url) as session, open_session(postgres.url) as other:
        await session.listen("news", on_notification)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.wait_closed)
            for number in range(20):
                await other.fetch("select pg_notify('news', $1)", f"theirs {number}")
                assert (await session.fetch("select $1::int", number))[0][0] == number
                await session.fetch("select pg_notify('news', $1)", f"ours {number}")
                assert payloads[-1] == f"ours {number}"  # received with the answer
            await other.fetch("select pg_notify('news', 'last')")
            with trio.fail_after(30):
                await arrived.wait()
            nursery.cancel_scope.cancel()
        assert (await session.fetch("select 7"))[0][0] == 7  # and without a listener again
    assert [payload for payload in payloads if payload.startswith("theirs")] == [f"theirs {n}" for n in range(20)]


async def test_a_waiting_query_reads_on_when_the_listener_stops(postgres: PostgresServer) -> None:
    async with open_session(postgres.url) as session, trio.open_nursery() as nursery:
        listening = trio.CancelScope()

        async def listen() -> None:
            with listening:
                await session.wait_closed()

        async def run_query() -> None:
            assert (await session.fetch("select 1 from pg_sleep(0.2)"))[0][0] == 1

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run_query)
        await trio.testing.wait_all_tasks_blocked()
        listening.cancel()


# The loop itself


async def test_the_loop_leaves_nothing_behind(postgres: PostgresServer) -> None:
    """No asyncio loop is set outside of its calls, and a closed connection has no socket."""
    loop = ConnectionLoop()  # type: ignore[abstract]

    async def never() -> None:
        await loop.create_future()

    connection: Any = await loop.perform(partial(asyncpg.connect, postgres.url, loop=loop, **WITHOUT_TIMERS))
    (transport,) = loop.transports
    assert asyncio._get_running_loop() is None
    task = loop.start(connection.fetch, "select 1")
    assert asyncio._get_running_loop() is None
    assert not task.done()
    await loop.wait(task)
    await loop.perform(connection.close)
    assert loop.transports == []
    assert transport.get_extra_info("socket").fileno() == -1
    with pytest.raises(ConnectionError):  # does not wait for ever
        await loop.perform(never)


async def test_asyncios_cancellation_and_shields_work(postgres: PostgresServer) -> None:
    loop = ConnectionLoop()  # type: ignore[abstract]
    connection: Any = await loop.perform(partial(asyncpg.connect, postgres.url, loop=loop, **WITHOUT_TIMERS))

    async def shielded() -> object:
        async with asyncio.timeout(None):
            return await asyncio.shield(asyncio.ensure_future(connection.fetchval("select 5")))

    assert await loop.perform(shielded) == 5
    task = loop.start(connection.fetch, "select pg_sleep(30)")
    loop.call(task.cancel)  # asyncpg cancels the statement on the server, over another connection
    await loop.wait(task)
    assert task.cancelled()
    assert await loop.perform(connection.fetchval, "select 6") == 6
    loop.call(connection.terminate)
