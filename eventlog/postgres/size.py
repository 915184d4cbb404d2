"""The size of the database on disk, asked for now and then: a request for /metrics must not wait for Postgres."""

from __future__ import annotations

import logging

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.session import Pool

logger = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds between two questions; Postgres looks at the size of each file
SIZE = "SELECT pg_database_size(current_database())"


class DatabaseSize:
    """``bytes``: as of the last answer; None before the first."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.bytes: int | None = None

    async def run(self) -> None:
        while True:
            try:
                await self.ask()
            except LogError as error:
                logger.debug("the size of the database is not known: %s", error)
            await trio.sleep(INTERVAL)

    async def ask(self) -> None:
        """Ask the database for its size. LogUnavailable."""
        self.bytes = (await self._pool.fetch(SIZE))[0][0]
