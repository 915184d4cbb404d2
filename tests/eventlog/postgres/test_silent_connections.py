"""Connections that stay open and never answer: each wait is bounded, and a new connection takes over."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import trio
from log_changes import batch, create, put, update
from outages.standby import psql
from outages.unreliable_proxy import UnreliableProxy, proxy_to
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.postgres import connection, listener, log_reads, session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.testing import open_stack, transaction

RELOAD = "select pg_reload_conf()"
TERMINATE = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{}'"


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[UnreliableProxy]:
    async with proxy_to(postgres.port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "QUICK_BOUND", 1.0)
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    monkeypatch.setattr(connection, "ANSWER_BOUND", 60.0)
    monkeypatch.setattr(listener, "CHECK_SECONDS", 60.0)
    monkeypatch.setattr(session, "SUSPECT_SECONDS", 0.2)


def through(proxy: UnreliableProxy, database: str) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/{database.rsplit('/', 1)[1]}"


async def test_a_swallowed_query_of_the_head_is_repeated_on_a_new_connection(
    proxy: UnreliableProxy, database: str
) -> None:
    async with open_postgres_log(through(proxy, database), instance="test") as log:
        await put(log, create("a"))
        proxy.swallow()
        with trio.fail_after(30):
            assert (await log.head()).revision == 1


async def test_a_swallowed_append_is_looked_up_and_fenced(proxy: UnreliableProxy, database: str) -> None:
    async with open_postgres_log(through(proxy, database), instance="test") as log:
        await put(log, create("a"))
        proxy.swallow()
        ours = batch(create("b"))
        with trio.fail_after(30):
            with pytest.raises(OutcomeUnknown):
                await log.append(ours)
            assert await log.settle(ours) is None
            assert (await put(log, create("b"))).revision == 2


async def test_an_append_that_postgres_still_works_on_is_waited_for(proxy: UnreliableProxy, database: str) -> None:
    """As behind a lock: the connection is slow, not silent."""
    async with open_postgres_log(through(proxy, database), instance="test") as log:
        await put(log, create("a"))
        async with log._maintenance() as blocker, trio.open_nursery() as nursery:
            await blocker.execute("begin; select from kubechronicle.head for update")
            nursery.start_soon(put, log, create("b"))
            await blocker.fetch("select pg_sleep(2)")  # longer than PATIENCE
            await blocker.execute("rollback")
        assert (await log.head()).revision == 2


async def test_queries_that_wait_beside_a_silent_one_are_repeated_too(proxy: UnreliableProxy, database: str) -> None:
    async with open_postgres_log(through(proxy, database), instance="test") as log:
        await put(log, create("a"))
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(log._pool.fetch, "select pg_sleep(0.3)")
        proxy.swallow()
        found = []

        async def read() -> None:
            found.append(len(await log.read_resource("pods", after=0, until=1, limit=5)))

        with trio.fail_after(30):  # by their own bound alone, they would wait for 60 s
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                nursery.start_soon(read)
                nursery.start_soon(log.head)
        assert found == [1, 1]


async def test_a_stopped_backend_does_not_stop_the_replica(database: str, proxy: UnreliableProxy) -> None:
    """Reads and appends go on while the backends of the former connections stand still."""
    async with open_postgres_log(through(proxy, database), instance="test") as log, open_stack(log) as stack:
        await put(log, create("a"))
        assert await stack.reads.wait() == 1
        stopped = [one.backend_pid for one in (log._appending, *log._pool._idle) if one is not None]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            with trio.fail_after(40):
                assert await stack.reads.wait() == 1
                ours = batch(create("b"))
                with suppress(OutcomeUnknown):
                    await log.append(ours)
                await log.settle(ours)
                assert (await put(log, create("c"))).revision <= 3
                await stack.tail.reach(2)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert (await log.verify()).problem is None


async def test_a_changed_password_is_waited_for(postgres: PostgresServer, database: str) -> None:
    """Writers and readers go on once the password is right again; nothing gives up."""
    name = database.rsplit("/", 1)[1]
    rules = postgres.directory / "data" / "pg_hba.conf"
    before = rules.read_text()
    async with open_postgres_log(database, instance="test") as log, open_stack(log) as stack:
        first = await stack.appender.append(transaction(create("a")), deadline=math.inf)
        rules.write_text(f"host {name} all all reject\nlocal {name} all reject\n{before}")
        try:
            for statement in (RELOAD, TERMINATE.format(name)):
                await trio.to_thread.run_sync(psql, postgres, statement)
            with trio.fail_after(60):
                while stack.tail.healthy:
                    await log.wait_notified()
            assert "28000" in str(stack.tail.last_error)
            with pytest.raises(LogUnavailable):
                await stack.appender.append(transaction(update(*first)), deadline=trio.current_time() + 5)
        finally:
            rules.write_text(before)
            await trio.to_thread.run_sync(psql, postgres, RELOAD)
        with trio.fail_after(60):
            while not stack.tail.healthy:
                await log.wait_notified()
            (second,) = await stack.appender.append(transaction(update(*first)), deadline=math.inf)
        assert second.revision == 2
