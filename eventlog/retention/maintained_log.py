"""MaintainedLog: the maintenance of PostgresLog. It may take long, and hold session-level locks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from kubechronicle.eventlog.integrity import verify, witnesses
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.records import Head
from kubechronicle.eventlog.retention import retention


class MaintainedLog:
    """The maintaining part of PostgresLog.

    ``_connect_unbounded``: opens a connection whose statements may take long.
    """

    _connect_unbounded: Callable[[], Awaitable[PostgresSession]]

    async def compact(
        self, revision: int, *, archive: Path | None = None, actor: str = retention.ACTOR, reason: str = ""
    ) -> Head:
        """Compact the history of all resources up to the revision. FutureRevision; Compacted: it already is."""
        async with self._maintenance() as session:
            return await retention.compact(session, revision, archive=archive, actor=actor, reason=reason)

    async def retain(
        self,
        policies: Sequence[retention.RetentionPolicy] = retention.DEFAULT_POLICIES,
        *,
        now: datetime | None = None,
        archive: Path | None = None,
    ) -> retention.Retained:
        """Apply the retention policies once: compact by age and count, archive and drop partitions, make the next ones,
        prune batches."""
        async with self._maintenance() as session:
            return await retention.retain(session, policies, now=now, archive=archive)

    async def witness(self, service: str, ask: witnesses.Ask, *, after: timedelta) -> tuple[timedelta, int]:
        """Let an outside witness sign the state of the log (integrity/witnesses.py)."""
        async with self._maintenance() as session:
            return await witnesses.renew(session, service, ask, after=after)

    async def verify(self) -> verify.LogVerdict:
        """Recompute the whole hash chain, which reads all history."""
        async with self._maintenance() as session:
            return await verify.verify(session)

    @asynccontextmanager
    async def _maintenance(self) -> AsyncIterator[PostgresSession]:
        """Open a connection for one maintenance task, which may take long and hold session-level locks."""
        session = await self._connect_unbounded()
        try:
            yield session
        finally:
            await session.close()
