"""A request that the sole appender release its claim, so that others may append for a moment (sole_appender.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.postgres import sql
from kubechronicle.eventlog.postgres.listener import CHANNEL, NOTIFY, RELEASE_CLAIM
from kubechronicle.eventlog.postgres.session import Session

ADVISORY_LOCK = 0x6B63736F  # "kcso": held shared while others append; claim_sole fails meanwhile
PATIENCE = 10.0  # seconds; a running server releases its claim within a few milliseconds
INTERVAL = 0.05


@asynccontextmanager
async def shared_appends(session: Session) -> AsyncIterator[None]:
    """Within the block, any client may call append(). LogUnavailable: the sole appender keeps its claim."""
    await session.fetch("select pg_advisory_lock_shared($1)", ADVISORY_LOCK)
    try:
        with trio.move_on_after(PATIENCE) as patience:
            while (await session.fetch(sql.CLAIMED))[0][0]:
                await session.fetch(NOTIFY, CHANNEL, RELEASE_CLAIM)
                await trio.sleep(INTERVAL)
        if patience.cancelled_caught:
            raise LogUnavailable("the server that runs this database does not let others append; is it suspended?")
        yield
    finally:
        if not session.closed:
            await session.fetch("select pg_advisory_unlock_shared($1)", ADVISORY_LOCK)
