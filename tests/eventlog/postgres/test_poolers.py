"""A real PgBouncer in transaction mode before Postgres: supported beside a direct address, refused without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from log_changes import batch, create, put, update
from outages.pgbouncer import pgbouncer
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Rejected
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES


@pytest.fixture
def pooled(postgres: PostgresServer, database: str) -> Iterator[str]:
    """Return the URL of the test's database through PgBouncer, which has three connections to Postgres."""
    with pgbouncer(postgres, size=3) as port:
        yield database.replace(f":{postgres.port}/", f":{port}/")


async def test_a_pooler_in_transaction_mode_is_refused_in_one_line(pooled: str) -> None:
    with pytest.raises(SetupError, match=r"pooler in transaction mode: .* --database-direct-url") as refused:
        async with open_postgres_log(pooled, instance="test"):
            pass
    assert "\n" not in str(refused.value)
    with pytest.raises(SetupError, match="pooler in transaction mode"):
        await migrate(pooled)


async def test_a_pooler_in_session_mode_is_like_postgres(postgres: PostgresServer, database: str) -> None:
    with pgbouncer(postgres, mode="session") as port:
        url = database.replace(f":{postgres.port}/", f":{port}/")
        assert await migrate(url) == []
        async with open_postgres_log(url, instance="test") as log:
            assert log.notifications_work
            assert (await put(log, create("a"))).revision == 1


async def test_two_servers_on_one_pooler(pooled: str, database: str) -> None:
    """Their appends and reads share three connections; each hears of the other, and the log is whole."""

    async def write(log: Any, name: str) -> None:
        record = await put(log, create(name))
        for _ in range(30):
            record = await put(log, update(record))
        outcomes = (await log.append(batch(update(record), *(create(f"{name}-{n}") for n in range(5))))).outcomes
        assert not any(isinstance(outcome, Rejected) for outcome in outcomes)

    async def read(log: Any) -> None:
        for _ in range(30):
            head = await log.head()
            await log.read(after=max(0, head.revision - 5), limit=10)
            await log.list_at("pods", revision=head.revision, limit=3)
            await log.changes(ChangeQuery(), limit=3)

    async with (
        open_postgres_log(pooled, instance="one", direct_url=database) as one,
        open_postgres_log(pooled, instance="two", direct_url=database) as two,
    ):
        assert one.notifications_work
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for number, log in enumerate((one, two)):
                    nursery.start_soon(write, log, f"n{number}")
                    nursery.start_soon(read, log)
                    nursery.start_soon(read, log)
            heard = two._listener.notifications
            await put(one, create("last"))
            while two._listener.notifications == heard:
                await two.wait_notified()
        assert (await two.head()).revision == 2 * (1 + 30 + 6) + 1
        loaded = [record async for _, chunk in one.load() for record in chunk]
        assert len(loaded) == 2 * 6 + 1
        lost = batch(create("never"))
        assert await one.settle(lost) is None
        assert not (await one.retain(DEFAULT_POLICIES)).busy
    async with open_session(database) as session:
        assert (await verify(session)).problem is None
