"""The database of a command: --database-url, or the embedded one of --data-dir, started if it is not running."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres.embedded_postgres import (
    Running,
    embedded_postgres,
    has_cluster,
    starting_postgres,
    url_of_running,
)
from kubechronicle.ops.settings.settings import Settings


@asynccontextmanager
async def server_database(settings: Settings, failures: TaskFailures | None = None) -> AsyncGenerator[Running]:
    """Yield the database of a server. An embedded one belongs to that server, and starts while the server prepares."""
    if settings.database_url is not None:
        url = settings.database_url

        async def operators_url() -> str:
            return url

        yield Running(operators_url)
        return
    async with starting_postgres(settings.data_dir, failures) as running:
        yield running


@asynccontextmanager
async def maintenance_database(settings: Settings) -> AsyncGenerator[str]:
    """Yield the database's URL for a command, beside a running server or without one. Raise OperatorError."""
    if settings.database_url is not None:
        yield settings.database_direct_url or settings.database_url
        return
    data_dir = Path(settings.data_dir)
    if not has_cluster(data_dir):
        raise OperatorError(f"there is no database in {data_dir}; name its --data-dir, or give --database-url")
    running = url_of_running(data_dir)
    if running is not None:
        yield running
        return
    async with embedded_postgres(data_dir) as url:
        yield url
