"""A primary and its hot standby, as in a URL with both hosts: which server the log uses, and what a promotion loses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import postgres_fixture
import pytest
import trio
from log_changes import batch, create, put, update
from outages.standby import promote, psql, standby_of, stop_replication, wait_replayed
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import Compacted, Diverged, LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.positions import Position
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.testing import open_stack, transaction


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


async def test_a_promotion_that_loses_changes_is_told_and_overcome(pair: Pair) -> None:
    """An asynchronous standby lacks the last commits, and another server appends before this one looks again."""
    async with open_postgres_log(pair.url, instance="one") as log, open_stack(log) as stack:
        kept = await stack.appender.append(transaction(create("kept")), deadline=math.inf)
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        await trio.to_thread.run_sync(stop_replication, pair.standby)
        for name in ("lost-1", "lost-2", "lost-3"):
            await stack.appender.append(transaction(create(name)), deadline=math.inf)
        lost, cursor = stack.tail.lost, stack.views.watch("pods", after=4)
        await trio.to_thread.run_sync(pair.primary.kill9)
        await trio.to_thread.run_sync(promote, pair.standby)
        async with open_postgres_log(pair.url, instance="other") as other:
            for number in range(5):  # revisions 2 to 6
                await put(other, create(f"other-{number}"))
        with trio.fail_after(60):
            await lost.wait()
        (loss,) = stack.tail.losses
        assert (loss.after, loss.until) == (1, 4)
        assert [key.name for key in loss.objects] == ["lost-1", "lost-2", "lost-3"]
        await stack.tail.reach(6)
        with pytest.raises(Compacted):
            await cursor.next_batch()
        (record,) = await stack.appender.append(transaction(update(kept[0])), deadline=math.inf)
        assert record.revision == 7
        names = [entry.key.name for entry in stack.views["pods"].entries()]
        assert names == ["kept", *(f"other-{number}" for number in range(5))]
        assert stack.tail.healthy
        assert (await log.verify()).problem is None


async def test_no_change_is_appended_to_a_log_that_went_back_unseen(pair: Pair) -> None:
    """A new connection is compared before its first use, so an append never lands on changes that were not read."""
    async with open_postgres_log(pair.url, instance="one") as log:
        first = await put(log, create("a"))
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        await trio.to_thread.run_sync(stop_replication, pair.standby)
        second = await put(log, update(first))
        log.follow(lambda: Position.after(second))
        await trio.to_thread.run_sync(pair.primary.kill9)
        await trio.to_thread.run_sync(promote, pair.standby)
        with trio.fail_after(60):
            while True:
                with suppress(OutcomeUnknown):
                    with pytest.raises(LogUnavailable) as refused:
                        await log.append(batch(update(second)))
                    if isinstance(refused.value, Diverged):
                        break
        with pytest.raises(Diverged):
            await log.head()
        log.follow(lambda: None)
        assert (await log.head()).revision == 1


async def port_of(session: Any) -> int:
    return int((await session.fetch("select inet_server_port()"))[0][0])
