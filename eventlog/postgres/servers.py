"""The servers that use the database: a short text of each about itself, and the encrypted keys that they share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import orjson
import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.session import PostgresSession, SessionPool

# -- size --------------------------------------------------------------------------------------------------------------
#
# The size of the database on disk, asked for now and then: a request for /metrics must not wait for Postgres.

logger = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds between two questions; Postgres looks at the size of each file
SIZE = "SELECT pg_database_size(current_database())"


class DatabaseSize:
    """``bytes``: as of the last answer; None before the first."""

    def __init__(self, pool: SessionPool) -> None:
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


# -- servers -----------------------------------------------------------------------------------------------------------

SEEN_WITHIN: Final = "1 day"  # servers that were seen before are gone
_FORGET: Final = "delete from kubechronicle.servers where seen_at < now() - interval '30 days' or name = $1"
_ADD: Final = "insert into kubechronicle.servers (name, trust) values ($1, $2::jsonb) on conflict do nothing"
_OTHERS: Final = f"""
select name, trust::text as trust from kubechronicle.servers
where name <> $1 and seen_at > now() - interval '{SEEN_WITHIN}' order by name
"""
SEEN: Final = "update kubechronicle.servers set seen_at = now() where name = $1"


async def introduce(session: PostgresSession, name: str, trust: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Note this server, and return what is noted of the others that ran within the last day, by name."""
    await session.fetch(_FORGET, name)
    await session.fetch(_ADD, name, orjson.dumps(trust).decode())
    return {row["name"]: orjson.loads(row["trust"]) for row in await session.fetch(_OTHERS, name)}


# Servers that start together wait for the first one, which makes the keys.
_LOCK_KEYS = "begin; set local lock_timeout = 0; lock table kubechronicle.shared_keys in share row exclusive mode"
_LOG_ID = "select log_id from kubechronicle.state"
_KEYS = "select name, sealed from kubechronicle.shared_keys"
_ADD_KEYS = "insert into kubechronicle.shared_keys (name, sealed) values ($1, $2)"


class SharedKeys:
    """Made by ``sharing_keys``. ``log_id``: the identity of the log. ``sealed``: the encrypted keys, by name."""

    def __init__(self, session: PostgresSession, log_id: UUID, sealed: dict[str, bytes]) -> None:
        self._session = session
        self.log_id = log_id
        self.sealed = sealed

    async def add(self, name: str, sealed: bytes) -> None:
        await self._session.fetch(_ADD_KEYS, name, sealed)


@asynccontextmanager
async def sharing_keys(session: PostgresSession) -> AsyncIterator[SharedKeys]:
    """Hold the lock on the shared keys. Those added are committed at the end, all or none."""
    await session.execute(_LOCK_KEYS)
    committed = False
    try:
        log_id = (await session.fetch(_LOG_ID))[0][0]
        yield SharedKeys(session, log_id, {row["name"]: bytes(row["sealed"]) for row in await session.fetch(_KEYS)})
        await session.execute("commit")
        committed = True
    finally:
        if not committed and not session.closed:
            with trio.CancelScope(shield=True):
                await session.execute("rollback")
