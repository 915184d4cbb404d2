"""--storage-initialization-timeout: a start waits for a database that takes no connections yet."""

from __future__ import annotations

import logging
from functools import partial

import postgres_fixture
import pytest
import trio
from outages.pgbouncer import pgbouncer

from kubechronicle.eventlog.errors import LogUnavailable, SetupError
from kubechronicle.eventlog.postgres.connection import check_pooler, migrate
from kubechronicle.ops.server import preparation
from kubechronicle.ops.server.preparation import patiently


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "LOOK", 0.1)


class _Told(logging.Filter):
    """Notes that a line was logged."""

    def __init__(self, told: trio.Event) -> None:
        super().__init__()
        self._told = told

    def filter(self, record: logging.LogRecord) -> bool:
        self._told.set()
        return True


async def test_a_database_that_starts_later(caplog: pytest.LogCaptureFixture) -> None:
    waiting = trio.Event()
    applied: list[str] = []
    caplog.set_level(logging.WARNING)
    caplog.handler.addFilter(_Told(waiting))
    with postgres_fixture.running("fsync=off") as server:
        await trio.to_thread.run_sync(server.stop)

        async def start() -> None:
            applied.extend(await patiently(partial(migrate, server.url), 60.0))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await waiting.wait()
                await trio.to_thread.run_sync(server.start)
        assert applied
        assert [record.message for record in caplog.records] == ["Waiting for the database"]
        with pytest.raises(SetupError, match="3D000"), trio.fail_after(30):
            await patiently(partial(migrate, server.url.removesuffix("postgres") + "nonesuch"), 600.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
async def test_the_wait_ends(host: str) -> None:
    with pytest.raises(LogUnavailable, match="no connection to Postgres"):
        await patiently(partial(migrate, f"postgresql://postgres@{host}:1/postgres"), 0.3)


async def test_a_pooler_that_starts_later() -> None:
    with postgres_fixture.running("fsync=off") as server:
        url = server.url.replace(f":{server.port}/", ":{}/")
        with pgbouncer(server) as port:
            await patiently(partial(check_pooler, url.format(port)), 60.0)
        with pytest.raises(LogUnavailable, match="no connection to Postgres"):
            await patiently(partial(check_pooler, url.format(port)), 0.3)
