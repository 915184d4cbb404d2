"""Searches and lists of the past on a hot standby: the same answers as the primary's, whatever happens to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import postgres_fixture
import pytest
import trio
from log_changes import create, put, update
from outages.standby import promote, psql, standby_of, wait_replayed
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.postgres import standby_reads
from kubechronicle.eventlog.postgres.connection import migrate
from kubechronicle.eventlog.postgres_log import PostgresLog, open_postgres_log
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.groups import GroupQuery


class Pair:
    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")
    monkeypatch.setattr(standby_reads, "RETRY", 0.0)
    with postgres_fixture.running("fsync=off") as primary:
        trio.run(migrate, primary.url)
        with standby_of(primary) as standby:
            wait_replayed(primary, standby)
            yield Pair(primary, standby)


async def names(log: PostgresLog) -> list[str]:
    return [record.key.name for record, _ in await log.changes(ChangeQuery(newest_first=False), limit=100)]


def counts(log: PostgresLog) -> tuple[int, int]:
    """Return how many reads the standby has answered, and the primary in its place."""
    assert log.standby is not None
    return log.standby.served, log.standby.passed_over


async def test_searches_on_the_standby_see_each_change_acknowledged_before(pair: Pair) -> None:
    async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.standby.url) as log:
        for number in range(20):
            record = await put(log, create(f"pod-{number}"))
            assert len(await names(log)) == number + 1
        assert await log.count_at("pods", revision=record.revision) == 20
        assert [each.key.name for each in await log.list_at("pods", revision=2, limit=10)] == ["pod-0", "pod-1"]
        (group,) = await log.groups(GroupQuery(changes=ChangeQuery(), by=("resource",)))
        assert group.values == ("pods",)
        await put(log, update(record, delete=True))
        assert await log.count_at("pods", revision=21) == 19
        served, passed_over = counts(log)
        assert served + passed_over == 24
        assert served >= 20  # a busy machine may be behind for half a second


async def test_the_primary_answers_while_the_standby_is_behind(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.standby.url) as log:
        await put(log, create("a"))
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        await trio.to_thread.run_sync(psql, pair.standby, "select pg_wal_replay_pause()")
        await put(log, create("b"))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await names(log) == ["a", "b"]
        assert counts(log) == (0, 3)
        assert len([line for line in caplog.messages if "behind the primary" in line]) == 1
        await trio.to_thread.run_sync(psql, pair.standby, "select pg_wal_replay_resume()")
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        assert await names(log) == ["a", "b"]
        assert counts(log) == (1, 3)
        assert caplog.messages[-1].endswith("answers again")


async def test_the_primary_answers_while_the_standby_is_gone(pair: Pair) -> None:
    async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.standby.url) as log:
        await put(log, create("a"))
        await trio.to_thread.run_sync(pair.standby.kill9)
        assert await names(log) == ["a"]
        await trio.to_thread.run_sync(pair.standby.start)
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        assert await names(log) == ["a"]
        assert counts(log) == (1, 1)


async def test_a_standby_that_was_promoted_is_not_asked(pair: Pair) -> None:
    """Others may append to it: then it holds changes that this log does not."""
    async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.standby.url) as log:
        await put(log, create("a"))
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        assert await names(log) == ["a"]
        await trio.to_thread.run_sync(promote, pair.standby)
        async with open_postgres_log(pair.standby.url, instance="other") as other:
            await put(other, create("elsewhere"))
        assert await names(log) == ["a"]
        assert counts(log) == (1, 1)


async def test_a_standby_that_is_down_at_the_start_is_used_later(pair: Pair) -> None:
    await trio.to_thread.run_sync(pair.standby.stop)
    async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.standby.url) as log:
        await put(log, create("a"))
        assert await names(log) == ["a"]
        await trio.to_thread.run_sync(pair.standby.start)
        await trio.to_thread.run_sync(wait_replayed, pair.primary, pair.standby)
        assert await names(log) == ["a"]
        assert counts(log) == (1, 1)


async def test_a_url_that_leads_elsewhere_is_refused_at_the_start(pair: Pair) -> None:
    with pytest.raises(SetupError, match="--history-database-url leads to no hot standby"):
        async with open_postgres_log(pair.primary.url, instance="test", standby_url=pair.primary.url):
            raise AssertionError("opened")
    await trio.to_thread.run_sync(psql, pair.primary, "create database other")
    other = pair.primary.url.rsplit("/", 1)[0] + "/other"
    await migrate(other)
    with pytest.raises(SetupError, match="a standby of another database"):
        async with open_postgres_log(other, instance="test", standby_url=pair.standby.url):
            raise AssertionError("opened")
