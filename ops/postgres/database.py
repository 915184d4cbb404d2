"""Which database a command works on: --database-url, or the embedded one of --data-dir, started if nobody runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

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
async def server_database(settings: Settings) -> AsyncGenerator[Running]:
    """For a server, which keeps an embedded database to itself. That starts while the server prepares itself."""
    if settings.database_url is not None:
        url = settings.database_url

        async def given() -> str:
            return url

        yield Running(given)
        return
    async with starting_postgres(settings.data_dir) as running:
        yield running


@asynccontextmanager
async def maintenance_database(settings: Settings) -> AsyncGenerator[str]:
    """The URL for a command beside a server or without one. OperatorError: there is nothing to work on."""
    if settings.database_url is not None:
        yield settings.database_url
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
