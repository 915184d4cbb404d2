"""StandbyReads: searches and lists of the past on a hot standby, with the answers that the primary would give.

The primary tells up to where its write-ahead log is on disk, which includes each change that was acknowledged. A read
runs on the standby once that has replayed as much. So it also knows every erasure and the marks of retention.

    primary   pg_current_wal_flush_lsn()                0/3000148
    standby   pg_last_wal_replay_lsn() >= 0/3000148     yes, within WAIT seconds
    standby   the row at the applied revision           as this server knows it: no other log (positions.py)
    standby   the search

A standby that is behind, lost, promoted, or of another log is passed over, and the primary answers. Then it is left
alone for RETRY seconds, and the log says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

import trio

from kubechronicle.eventlog.errors import LogUnavailable, SetupError
from kubechronicle.eventlog.postgres.log_reads import QUICK_BOUND, LogReads
from kubechronicle.eventlog.postgres.session import PostgresSession, SessionPool
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import Record

logger = logging.getLogger(__name__)

WAIT: Final = 0.5
"""Seconds that a read waits for the standby to catch up. Streaming replication takes milliseconds."""

RETRY: Final = 10.0
"""Seconds for which the primary answers after the standby could not."""

_FIRST_LOOK, _LONGEST_LOOK = 0.002, 0.05  # seconds between two questions whether the standby has caught up

LOG_ID: Final = "select log_id from kubechronicle.state"

_FLUSHED = "select pg_current_wal_flush_lsn()::text"
_KIND = "select pg_is_in_recovery(), log_id from kubechronicle.state"
_REPLAYED = "select pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)"

T = TypeVar("T")


class Standby:
    """A hot standby of the log's database.

    ``served``: reads that it has answered. ``passed_over``: reads that the primary has answered in its place.
    """

    def __init__(self, pool: SessionPool) -> None:
        self.reads = LogReads(pool)
        self.served = 0
        self.passed_over = 0
        self._pool = pool
        self._rests_until = 0.0
        self._failing = False

    async def is_usable(self, primary: LogReads, primary_pool: SessionPool) -> bool:
        """Return whether a read here has the answer of the primary. Wait up to WAIT seconds for that. LogUnavailable:
        the primary does not answer."""
        if trio.current_time() < self._rests_until:
            return False
        flushed = (await primary_pool.fetch(_FLUSHED, bound=QUICK_BOUND))[0][0]
        try:
            if not await self._has_replayed(flushed):
                self.rest(f"it is more than {WAIT:g} s behind the primary")
                return False
            async with self._pool.session() as session:
                await primary.check_position(session)
        except (LogUnavailable, SetupError) as error:
            self.rest(str(error))
            return False
        return True

    async def _has_replayed(self, flushed: str) -> bool:
        pause, deadline = _FIRST_LOOK, trio.current_time() + WAIT
        while True:
            in_recovery, replayed = (await self._pool.fetch(_REPLAYED, flushed, bound=QUICK_BOUND))[0]
            if not in_recovery:
                raise LogUnavailable("it is no standby any more; is it the new primary?")
            if replayed:
                return True
            if trio.current_time() + pause > deadline:
                return False
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK)

    def rest(self, why: str) -> None:
        """Leave the standby alone for a while."""
        self._rests_until = trio.current_time() + RETRY
        if not self._failing:
            logger.warning("the standby of --history-database-url is not used, the primary answers instead: %s", why)
        self._failing = True

    def note_served(self) -> None:
        self.served += 1
        if self._failing:
            logger.warning("the standby of --history-database-url answers again")
        self._failing = False

    async def aclose(self) -> None:
        await self._pool.aclose()

    @classmethod
    async def of(cls, connect: Callable[[], Awaitable[PostgresSession]], log_id: UUID) -> Standby:
        """Return the standby behind ``connect``. One that does not answer now is looked for later.

        SetupError: it is no hot standby, or one of another log.
        """
        standby = cls(SessionPool(connect))
        try:
            in_recovery, found = (await standby._pool.fetch(_KIND, bound=QUICK_BOUND))[0]
        except LogUnavailable as error:
            standby.rest(str(error))
            return standby
        if not in_recovery or found != log_id:
            await standby.aclose()
            what = "a standby of another database" if in_recovery else "no hot standby"
            raise SetupError(
                f"--history-database-url leads to {what}; give it a standby of --database-url, or leave it"
            )
        return standby


class StandbyReads(LogReads):
    """LogReads whose searches and lists of the past run on a standby, if there is a usable one."""

    def __init__(self, pool: SessionPool, standby: Standby | None) -> None:
        super().__init__(pool)
        self.standby = standby

    async def _past(self, here: Callable[[], Awaitable[T]], there: Callable[[LogReads], Awaitable[T]]) -> T:
        """Run a read on the standby, or on the primary: ``here``."""
        standby = self.standby
        if standby is None:
            return await here()
        if await standby.is_usable(self, self._pool):
            try:
                result = await there(standby.reads)
            except (LogUnavailable, SetupError) as error:  # lost, or cancelled by a conflict with recovery
                standby.rest(str(error))
            else:
                standby.note_served()
                self.restart(max(self.newest_seen_revision, standby.reads.newest_seen_revision))
                return result
        standby.passed_over += 1
        return await here()

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        here = super().changes
        return await self._past(lambda: here(query, limit=limit), lambda reads: reads.changes(query, limit=limit))

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        here = super().states
        return await self._past(
            lambda: here(queries, limit=limit, texts=texts),
            lambda reads: reads.states(queries, limit=limit, texts=texts),
        )

    async def density(self, query: DensityQuery) -> list[Count]:
        here = super().density
        return await self._past(lambda: here(query), lambda reads: reads.density(query))

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        here = super().groups
        return await self._past(lambda: here(query), lambda reads: reads.groups(query))

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        here = super().list_at
        return await self._past(
            lambda: here(resource, revision=revision, namespace=namespace, after=after, limit=limit),
            lambda reads: reads.list_at(resource, revision=revision, namespace=namespace, after=after, limit=limit),
        )

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        here = super().count_at
        return await self._past(
            lambda: here(resource, revision=revision, namespace=namespace, after=after),
            lambda reads: reads.count_at(resource, revision=revision, namespace=namespace, after=after),
        )
