"""A request that the sole appender release its claim, so that others may append for a moment (sole_appender.py).

The request is a lock (locks.py), and claim_sole fails while it is held. A notification only makes the server look
sooner: every role that can connect can send one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.postgres import sql
from kubechronicle.eventlog.postgres.listener import CHANNEL, LOOK_AT_CLAIM, NOTIFY
from kubechronicle.eventlog.postgres.locks import APPENDS, held, on_nothing
from kubechronicle.eventlog.postgres.session import Session

PATIENCE = 10.0  # seconds; a running server releases its claim within a few milliseconds
INTERVAL = 0.05


@asynccontextmanager
async def shared_appends(session: Session) -> AsyncIterator[None]:
    """Within the block, any client may call append(). LogUnavailable: the sole appender keeps its claim."""
    async with held(session, APPENDS, on_wait=on_nothing):
        with trio.move_on_after(PATIENCE) as patience:
            while (await session.fetch(sql.CLAIMED))[0][0]:
                await session.fetch(NOTIFY, CHANNEL, LOOK_AT_CLAIM)
                await trio.sleep(INTERVAL)
        if patience.cancelled_caught:
            raise LogUnavailable("the server that runs this database does not let others append; is it suspended?")
        yield
