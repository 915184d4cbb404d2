"""PostgresLog: the calls of log.py as statements on sessions, with checks of their results.

    async with open_postgres_log("postgresql://…", instance="a1b2") as log:

One connection is for appends, one at a time, and for the listener; a small pool is for reads. No asyncpg here
(postgres/connection.py), no SQL (postgres/sql.py).

Invariants: a result is complete or an error, never a shortened list. A lost connection is OutcomeUnknown if a batch was
sent and LogUnavailable otherwise, and never a rejection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import trio

from kubechronicle.eventlog.errors import (
    BeforeHistory,
    Compacted,
    FutureMoment,
    FutureRevision,
    LogCorrupt,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
    SetupError,
    unwrapped,
)
from kubechronicle.eventlog.integrity import verify
from kubechronicle.eventlog.log import Claim
from kubechronicle.eventlog.postgres import change_sql, connection, density_sql, rows, sql
from kubechronicle.eventlog.postgres.bounded_reads import fetch_bounded
from kubechronicle.eventlog.postgres.listener import Listener
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.recorded_reads import RecordedReads
from kubechronicle.eventlog.postgres.session import ConnectionLost, Pool, Row, Session, UniqueViolation, acquire
from kubechronicle.eventlog.queries import density
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.chunks import Chunk
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Key, Moment, Operation, Record
from kubechronicle.eventlog.retention import retention

APPEND_BOUND = 40.0  # seconds: above the statement timeout, so that Postgres usually reports the outcome
APPEND_GRACE = 5.0  # seconds a cancelled append still waits for its answer
LOAD_CHUNK = 1000  # objects at a time: some 4 MB of typical ones

_AFTER_HEAD = 3  # columns of a reading statement before those of the record


class PostgresLog:
    """A RevisionLog in Postgres. Made by ``open_postgres_log``."""

    def __init__(self, connect: Callable[[], Awaitable[Session]]) -> None:
        self._connect = connect
        self._pool = Pool(connect)
        self.recorded = RecordedReads(self._pool)
        self._appending: Session | None = None
        self._append_lock = trio.Lock()
        self._token, self._claims = str(uuid4()), False  # our token for claims to append alone; whether we claim
        self.newest_seen_revision = 0  # see RevisionLog
        self._listener = Listener(self._append_session, self._append_lock, self._pool)
        self._short: tuple[str, ...] | None = None  # cache: resources of the class 'short', which never change

    @property
    def notifications_work(self) -> bool:
        """False behind a pooler in transaction mode, or while the listener has no connection; then it polls faster."""
        return self._listener.works

    async def run_listener(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self._listener.run(task_status=task_status)

    async def aclose(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pool.aclose)
            if self._appending is not None:
                nursery.start_soon(self._appending.close)

    # Appending

    async def append(self, batch: Batch) -> BatchResult:
        alone = len(batch.transactions) == 1 and len(batch.transactions[0].changes) == 1
        await acquire(self._append_lock)
        try:
            session = await self._append_session()
            if alone:
                # On this connection: Postgres may have no other one left.
                retention_class = await self._class_of(batch.transactions[0].changes[0].key.resource, session)
                statement, arguments = sql.APPEND_CHANGE, rows.change_arguments(batch, retention_class)
            else:
                statement, arguments = sql.APPEND, rows.batch_arguments(batch)
            try:
                result = await session.fetch_uninterrupted(
                    statement, *arguments, bound=APPEND_BOUND, grace=APPEND_GRACE
                )
            except ConnectionLost as lost:
                raise OutcomeUnknown(batch.id) from lost
            except UniqueViolation as twice:  # the batch id exists: the batch committed, or it was fenced
                settled = await self._settle(session, batch)
                if settled is None:
                    raise LogUnavailable(f"batch {batch.id} was given up") from twice
                return settled
        finally:
            self._append_lock.release()
        return rows.change_result(batch, result[0]) if alone else rows.batch_result(batch, result[0])

    async def settle(self, batch: Batch) -> BatchResult | None:
        async with self._append_lock:
            return await self._settle(await self._append_session(), batch)

    async def _settle(self, session: Session, batch: Batch) -> BatchResult | None:
        """Insert a fence under the batch id, unless the batch or an earlier fence is there."""
        if await session.fetch(sql.FENCE, batch.id):
            return None
        stored = await session.fetch(sql.BATCH, batch.id)
        if not stored or stored[0]["first_revision"] is None:
            return None
        settled = stored[0]
        first, head = settled["first_revision"], settled["head"]
        appended = await session.fetch(sql.BATCH_ROWS, first, head)
        if len(appended) != head - first + 1:
            raise LogCorrupt(f"batch {batch.id} took revisions {first} to {head}, but not all of them are in the log")
        return rows.settled_result(batch, settled, appended)

    async def _append_session(self) -> Session:
        """Return the connection for appends; open it if needed.

        Two tasks may open one at the same time, without waiting for each other; then the second one is dropped.
        """
        if self._appending is None or self._appending.closed:
            opened = await self._connect()
            if self._claims:
                await opened.fetch(sql.CLAIMANT, self._token)
            if self._appending is None or self._appending.closed:
                self._appending = opened
            else:
                opened.terminate()
        return self._appending

    # Appending alone

    async def claim(self) -> Claim | None:
        async with self._append_lock:
            self._claims = True
            session = await self._append_session()
            answer = (await session.fetch(sql.CLAIM, self._token))[0]
        return Claim(self._head(answer), session.connected) if answer["claimed"] else None

    async def wait_claim_in_doubt(self) -> None:
        while not await self._listener.wait_claim_in_doubt():
            try:
                if (await self._pool.fetch(sql.APPENDS_ARE_SHARED))[0][0]:
                    return
            except LogError:
                return

    async def check_may_append(self) -> None:
        """SetupError: the server that runs this database holds the claim to append alone."""
        if (await self._pool.fetch(sql.CLAIMED))[0][0]:
            raise SetupError(
                "this database is embedded in another server, which alone appends to it: "
                "give that one --workers N, or this one a --database-url of its own"
            )

    # Reading

    async def head(self) -> Head:
        return self._head((await self._pool.fetch(sql.HEAD))[0])

    async def read(self, *, after: int, limit: int) -> Chunk[Record]:
        head, matching = await self._fetch_bounded(sql.READ, after, limit, limit=limit, at=(_AFTER_HEAD,))
        newest_mark = max(head.compacted, *head.compacted_of.values(), 0)
        if after < newest_mark:
            raise Compacted(after, newest_mark)
        records = matching.map(lambda row: rows.record(row, _AFTER_HEAD))
        last = records[-1].revision if records.cut else min(after + limit, head.revision)
        expected = range(after + 1, last + 1)
        if [record.revision for record in records] != list(expected):
            raise LogCorrupt(f"the log has not exactly the revisions {expected.start} to {expected.stop - 1}")
        return records

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[tuple[Record, Record | None]]:
        statement = sql.read_resource(await self._class_of(resource), namespace=bool(namespace), name=bool(name))
        scope = [part for part in (namespace, name) if part]
        limit = min(limit, max(until - after, 1))
        arguments, at = (resource, after, until, limit, *scope), (_AFTER_HEAD, _AFTER_HEAD + rows.RECORD_WIDTH)
        head, matching = await self._fetch_bounded(statement, *arguments, limit=limit, at=at)
        self._check_retained(resource, after, head)
        return matching.map(lambda row: (rows.record(row, at[0]), rows.replaced(row, *at)))

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        limit = min(limit, max(query.until - query.after, 1))
        statement, arguments = change_sql.statement(query, limit, await self._short_resources())
        replaced = (_AFTER_HEAD + rows.RECORD_WIDTH + change_sql.WHO_WIDTH,) if query.with_replaced else ()
        at = (_AFTER_HEAD, *replaced)
        _, matching = await self._fetch_bounded(statement, *arguments, limit=limit, at=at)
        return matching.map(lambda row: change_sql.change_of(row, *at))

    async def density(self, query: density.DensityQuery) -> list[density.Count]:
        edges = [row[0] for row in await self._pool.fetch(density_sql.EDGES, list(query.edges))]
        query = replace(query, changes=density.within(query.changes, edges))
        revisions = query.changes.until - query.changes.after
        density.check_limit(revisions, query)
        statement, arguments = density_sql.statement(query, edges, await self._short_resources())
        return [density.Count(*row) for row in await self._pool.fetch(statement, *arguments)] if revisions > 0 else []

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        if change_sql.NUL in key.namespace or change_sql.NUL in key.name:
            return None  # no text of Postgres holds it
        statement = sql.get_at(await self._class_of(key.resource))
        head, matching = await self._fetch_with_head(statement, key.resource, key.namespace, key.name, revision)
        self._check_within(key.resource, revision, head)
        if not matching:
            return None
        record = rows.record(matching[0], _AFTER_HEAD)
        return None if record.operation is Operation.DELETE else record

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        statement = sql.list_at(await self._class_of(resource), namespace=bool(namespace))
        scope = [namespace] if namespace else []
        arguments = (resource, revision, *(after or ("", "")), limit, *scope)
        head, matching = await self._fetch_bounded(statement, *arguments, limit=limit, at=(_AFTER_HEAD + 1,))
        self._check_within(resource, revision, head)
        if any(row["revision"] is None for row in matching):
            raise LogCorrupt(f"an object of {resource} at revision {revision} is not in the log")
        return matching.map(lambda row: rows.record(row, _AFTER_HEAD + 1))

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        statement = sql.count_at(await self._class_of(resource), namespace=bool(namespace))
        scope = [namespace] if namespace else []
        answer = (await self._pool.fetch(statement, resource, revision, *(after or ("", "")), *scope))[0]
        self._check_within(resource, revision, self._head(answer))
        return int(answer["objects"])

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        arguments = (when, None) if isinstance(when, datetime) else (None, when)
        revision, moment, clock = (await self._pool.fetch(sql.MOMENT_AT, *arguments))[0]
        if moment > clock:
            raise FutureMoment(moment, clock)
        if revision is None:
            raise BeforeHistory(await self._oldest())
        self.newest_seen_revision = max(self.newest_seen_revision, revision)
        return Moment(revision, moment)

    async def moment_of(self, revision: int) -> Moment:
        answer = (await self._pool.fetch(sql.MOMENT_OF, revision))[0]
        head = self._head(answer)
        if revision > head.revision:
            raise FutureRevision(revision, head.revision)
        if revision < max(head.oldest, 1):
            raise BeforeHistory(await self._oldest())
        return Moment(revision, answer["committed_at"])

    async def _oldest(self) -> Moment | None:
        head = await self.head()
        return await self.moment_of(max(head.oldest, 1)) if head.revision else None

    async def load(self) -> AsyncGenerator[tuple[Head, Sequence[Record]], None]:
        short = await self._short_resources()
        async with self._pool.session() as session, session.snapshot():
            await session.execute(sql.LOCK_LOG)
            head = self._head((await session.fetch(sql.HEAD))[0])
            empty = True
            for statement in sql.LOAD.values():
                async with aclosing(
                    session.rows(statement, list(short), chunk=LOAD_CHUNK, size=rows.object_size(1))
                ) as chunks:
                    async for chunk in chunks:
                        if missing := next((row["live"] for row in chunk if row["revision"] is None), None):
                            raise LogCorrupt(f"revision {missing} of a live object is not in the log")
                        empty = False
                        yield head, [rows.record(row, 1) for row in chunk]
            if empty:
                yield head, []

    async def wait_notified(self) -> None:
        await self._listener.wait_notified()

    async def first_revision_since(self, moment: datetime) -> int:
        """Return the first revision committed at or after the moment; if there is none yet, the newest + 1."""
        return int((await self._pool.fetch(sql.FIRST_REVISION_SINCE, moment))[0][0])

    # Maintenance

    async def compact(self, revision: int, *, archive: Path | None = None) -> Head:
        """Compact the history of all resources up to the revision. FutureRevision; Compacted: it already is."""
        async with self._maintenance() as session:
            return await retention.compact(session, revision, archive=archive)

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

    async def verify(self) -> verify.Verdict:
        """Recompute the whole hash chain, which reads all history."""
        async with self._maintenance() as session:
            return await verify.verify(session)

    @asynccontextmanager
    async def _maintenance(self) -> AsyncIterator[Session]:
        """Open a connection for one maintenance task, which may take long and hold session-level locks."""
        session = await self._connect()
        try:
            yield session
        finally:
            await session.close()

    # Helpers

    async def _fetch_with_head(self, statement: str, *arguments: object) -> tuple[Head, list[Row]]:
        """Run a read; return the head and the matching rows, of one snapshot."""
        result = await self._pool.fetch(statement, *arguments)
        return self._head(result[0]), [row for row in result if row[_AFTER_HEAD] is not None]

    async def _fetch_bounded(
        self, statement: str, *arguments: object, limit: int, at: Sequence[int]
    ) -> tuple[Head, Chunk[Row]]:
        """As ``_fetch_with_head``, bounded by the bytes of the records in the columns from ``at`` on."""
        size = rows.object_size(*at)
        result = await fetch_bounded(self._pool, statement, *arguments, limit=limit, size=size, objects=len(at))
        head = self._head(result[0])
        if result[0][_AFTER_HEAD] is None:
            result.clear()
        return head, result

    def _head(self, row: Row) -> Head:
        head = rows.head(row)
        self.newest_seen_revision = max(self.newest_seen_revision, head.revision)
        return head

    async def _short_resources(self, session: Session | None = None) -> tuple[str, ...]:
        if self._short is None:
            self._short = tuple(row[0] for row in await (session or self._pool).fetch(sql.SHORT_RESOURCES))
        return self._short

    async def _class_of(self, resource: str, session: Session | None = None) -> str:
        return "short" if resource in await self._short_resources(session) else "long"

    @staticmethod
    def _check_retained(resource: str, revision: int, head: Head) -> None:
        compacted = head.compacted_for(resource)
        if revision < compacted:
            raise Compacted(revision, compacted)

    def _check_within(self, resource: str, revision: int, head: Head) -> None:
        self._check_retained(resource, revision, head)
        if revision > head.revision:
            raise FutureRevision(revision, head.revision)


@asynccontextmanager
async def open_postgres_log(url: str, *, instance: str) -> AsyncIterator[PostgresLog]:
    """Open the log in the migrated database at ``url``.

    ``instance``: the name of this server among those on the same database, shown in pg_stat_activity. SetupError: a
    mistake of the operator. LogUnavailable: the database does not answer now.
    """

    async def connect() -> Session:
        return await connection.connect(url, application=f"kubechronicle {instance}"[:63])

    session = await connect()
    try:
        await check_schema(session)
    finally:
        await session.close()
    log = PostgresLog(connect)
    async with unwrapped():
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(log.run_listener)
                try:
                    yield log
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await log.aclose()
