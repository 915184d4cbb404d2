"""Fixtures of the log's tests: one real Postgres per session, one migrated database per test."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import erasing_shop
import postgres_fixture
import pytest
import trio

TEMPLATE = "kubechronicle_migrated"


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_fixture.PostgresServer]:
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")
    # fsync off: these tests are about commits, not about power cuts
    with postgres_fixture.running("fsync=off") as server:
        yield server


def database_of(server: postgres_fixture.PostgresServer, name: str) -> str:
    return server.url.rsplit("/", 1)[0] + "/" + name


def sql(url: str, *statements: str) -> str:
    """Run statements with psql, as an operator would; return the rows, with columns separated by |."""
    tools = postgres_fixture.binaries()
    assert tools is not None
    commands = [part for statement in statements for part in ("-c", statement)]
    done = subprocess.run(
        [str(tools / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url, *commands],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def template(postgres: postgres_fixture.PostgresServer) -> str:
    from kubechronicle.eventlog.postgres.connection import migrate

    sql(postgres.url, f"create database {TEMPLATE}")
    trio.run(migrate, database_of(postgres, TEMPLATE))
    return TEMPLATE


@pytest.fixture
def empty_database(postgres: postgres_fixture.PostgresServer) -> Iterator[str]:
    """Return the URL of an empty database."""
    name = f"test_{uuid.uuid4().hex}"
    sql(postgres.url, f"create database {name}")
    yield database_of(postgres, name)
    sql(postgres.url, f"drop database {name} with (force)")


@pytest.fixture
def database(postgres: postgres_fixture.PostgresServer, template: str) -> Iterator[str]:
    """Return the URL of a migrated database for this test alone."""
    name = f"test_{uuid.uuid4().hex}"
    sql(postgres.url, f"create database {name} template {template}")
    yield database_of(postgres, name)
    if postgres.process is not None:
        sql(postgres.url, f"drop database {name} with (force)")


@pytest.fixture
async def replicas(database: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Return a function: ``await replicas()`` opens one more PostgresLog on the test's database."""
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    async with trio.open_nursery() as nursery:

        async def hold(*, task_status: trio.TaskStatus[Any]) -> None:
            async with open_postgres_log(database, instance="test") as log:
                task_status.started(log)
                await trio.sleep_forever()

        async def opened() -> Any:
            return await nursery.start(hold)

        yield opened
        nursery.cancel_scope.cancel()


@pytest.fixture
def run_sql(database: str) -> Callable[..., str]:
    """Return a function: ``run_sql(statement, …)`` runs statements in the test's database, on another connection."""
    return lambda *statements: sql(database, *statements)


@pytest.fixture
async def shop(replicas: Callable[[], Awaitable[Any]], run_sql: Callable[..., str]) -> erasing_shop.Shop:
    return await erasing_shop.open_shop(replicas, run_sql)


@pytest.fixture
def command(database: str, capsys: pytest.CaptureFixture[str]) -> erasing_shop.Command:
    from kubechronicle.ops import cli

    async def run(name: str, *arguments: str) -> tuple[int, str]:
        code = await trio.to_thread.run_sync(cli.main, (name, *arguments, "--database-url", database))
        output = capsys.readouterr()
        return code, output.out + output.err

    return run
