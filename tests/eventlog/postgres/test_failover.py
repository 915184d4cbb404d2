"""A primary and its hot standby, as in a URL with both hosts: which server the log uses, and what a promotion loses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import postgres_fixture
import pytest
import trio
from log_changes import batch, create, put
from outages.standby import promote, psql, standby_of, wait_replayed
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log


class Pair:
    """A primary and its standby."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby
        self.url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"


@pytest.fixture
def pair() -> Iterator[Pair]:
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")
    with postgres_fixture.running("fsync=off") as primary:
        trio.run(migrate, primary.url)
        with standby_of(primary) as standby:
            yield Pair(primary, standby)


async def test_a_restarted_primary_is_not_left_for_its_standby(pair: Pair) -> None:
    """While the primary is down the standby answers, with the state of then and no right to write."""
    async with open_postgres_log(pair.url, instance="test") as log:
        await put(log, create("a"))
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        await trio.to_thread.run_sync(pair.primary.kill9)
        with pytest.raises(LogUnavailable, match="no writable primary"):
            await log.head()
        pending = batch(create("b"))
        with pytest.raises((LogUnavailable, OutcomeUnknown)):
            await log.append(pending)
        await trio.to_thread.run_sync(pair.primary.start)
        assert await log.settle(pending) is None
        assert (await put(log, create("b"))).revision == 2
        assert (await log.head()).revision == 2
        # Reads for people may use the standby.
        async with open_session(f"{pair.standby.url}?target_session_attrs=standby") as session:
            assert (await session.fetch("select pg_is_in_recovery()"))[0][0]
        async with open_session(pair.standby.url) as session:
            assert (await session.fetch("select pg_is_in_recovery()"))[0][0]


async def test_a_standby_alone_is_refused_with_the_reason(pair: Pair) -> None:
    async with open_session(pair.standby.url):
        pass
    with pytest.raises(LogUnavailable, match="writable primary"):
        async with open_postgres_log(pair.standby.url, instance="test"):
            raise AssertionError("opened")


async def test_a_primary_that_becomes_read_only_is_left_for_the_other_host(pair: Pair) -> None:
    """SQLSTATE 25006 on an open connection, as when a managed database runs out of disk or is demoted."""
    async with open_postgres_log(pair.url, instance="test") as log:
        await put(log, create("a"))
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        await trio.to_thread.run_sync(promote, pair.standby)
        await trio.to_thread.run_sync(psql, pair.primary, "alter system set default_transaction_read_only = on")
        await trio.to_thread.run_sync(psql, pair.primary, "select pg_reload_conf()")
        with trio.fail_after(60):
            number, port = 0, pair.primary.port
            while port != pair.standby.port:  # until the reload has reached the backend
                number += 1
                with suppress(LogUnavailable, OutcomeUnknown):
                    await log.append(batch(create(f"b{number}")))
                    port = await port_of(log._appending)
        async with log._pool.session() as session:  # no read goes to the old primary
            assert await port_of(session) == pair.standby.port


async def port_of(session: Any) -> int:
    return int((await session.fetch("select inet_server_port()"))[0][0])
