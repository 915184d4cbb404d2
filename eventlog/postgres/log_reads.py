"""LogReads: the reading calls of log.py as statements on a pool of connections, with checks of their results.

Invariant: a result is complete or an error, never a shortened list.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from kubechronicle.eventlog.errors import (
    BeforeHistory,
    Compacted,
    FutureMoment,
    FutureRevision,
    LogCorrupt,
    UnknownMoment,
)
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.postgres import change_sql, clocks, count_sql, rows, sql
from kubechronicle.eventlog.postgres.clocks import Clocks
from kubechronicle.eventlog.postgres.servers import SEEN, DatabaseSize
from kubechronicle.eventlog.postgres.session import ConnectionLost, PostgresSession, Row, SessionPool
from kubechronicle.eventlog.queries import changes as chunks
from kubechronicle.eventlog.queries import density, groups
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk, within_history
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.states import STATE_BYTES, ObjectState, StatePair
from kubechronicle.eventlog.records import Head, Key, Moment, Operation, Record

# -- bounded reads -----------------------------------------------------------------------------------------------------
#
# Reads that are bounded by bytes: the rows come in small parts from a cursor, until they have enough bytes.
#
# Postgres can't tell the length of a stored object without decompressing it, so a statement can't bound the bytes
# itself.


FEW: Final = 8
"""Rows that are read without a cursor, which takes three more round trips."""

PART: Final = 512
"""Most objects in the rows that a cursor returns at once. Their bytes are known when they have arrived."""
PART_BYTES: Final = 64 * 1024 * 1024
"""Bytes of such rows, after which the connection is dropped: large objects have followed small ones."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of rows that are read without a cursor, as they are usually small. With more, the connection is dropped."""
SMALL_PART: Final = 8
"""Most objects in the rows that are returned at once by the second attempt, whatever their bytes."""


async def fetch_bounded(
    pool: SessionPool,
    statement: str,
    *arguments: object,
    limit: int,
    size: Callable[[Row], int],
    objects: int = 2,
    enough: int = 0,
    small: bool = False,
) -> Chunk[Row]:
    """Return the rows of a statement that has a ``limit``, up to the part that has enough bytes. LogUnavailable.

    ``size``: returns the bytes of the objects in a row. ``objects``: their number. ``enough``: 0: CHUNK_BYTES.
    ``small``: all rows together are usually small, and read at once.
    """
    if limit <= FEW:
        return Chunk(await pool.fetch(statement, *arguments))
    if small:
        try:
            async with pool.session() as session:
                return Chunk(await session.fetch(statement, *arguments, most_bytes=SMALL_BYTES))
        except ConnectionLost:  # as below
            pool.drop_idle()
    read = partial(_fetch_with_cursor, pool, statement, *arguments, size=size, enough=enough or chunks.CHUNK_BYTES)
    try:
        return await read(most=PART // objects, most_bytes=PART_BYTES)
    except ConnectionLost:  # an idle connection that died unnoticed, as in Pool.fetch; or there were too many bytes
        pool.drop_idle()
    return await read(most=SMALL_PART // objects, most_bytes=None)


async def _fetch_with_cursor(
    pool: SessionPool,
    statement: str,
    *arguments: object,
    size: Callable[[Row], int],
    enough: int,
    most: int,
    most_bytes: int | None,
) -> Chunk[Row]:
    result: Chunk[Row] = Chunk()
    total = 0
    async with (
        pool.session() as session,
        session.reading(),
        aclosing(session.rows(statement, *arguments, chunk=most, size=size, most_bytes=most_bytes)) as parts,
    ):
        async for part in parts:
            result += part
            total += sum(map(size, part))
            if total >= enough:
                result.cut = True
                break
    return result


QUICK_BOUND = 5.0  # seconds to wait for the answer to queries of milliseconds, which all readers wait for
LOAD_CHUNK = 1000  # objects at a time: some 4 MB of typical ones

# asyncpg takes the ends of Python's calendar for infinity, and returns them without a time zone.
_FIRST_TIME = datetime(1, 1, 2, tzinfo=UTC)
_LAST_TIME = datetime(9999, 12, 30, tzinfo=UTC)

_AFTER_HEAD = 3  # columns of a reading statement before those of the record


class LogReads:
    """The reading half of PostgresLog."""

    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool
        self.clocks = Clocks(pool)
        self.size = DatabaseSize(pool)
        self.newest_seen_revision = 0  # see RevisionLog
        self._position: Callable[[], Position | None] = lambda: None  # see ``follow``
        self._short: tuple[str, ...] | None = None  # cache: resources of the class 'short', which never change

    async def head(self) -> Head:
        return self._head((await self._pool.fetch(sql.HEAD, bound=QUICK_BOUND))[0])

    def follow(self, position: Callable[[], Position | None]) -> None:
        self._position = position

    def restart(self, newest: int) -> None:
        self.newest_seen_revision = newest

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        found = await self._pool.fetch(sql.IDENTITIES, list(revisions))
        return [one for row in found if (one := rows.identity(row["revision"], row, 1)) is not None]

    async def note_server(self, name: str) -> None:
        """Note that this server still runs (servers.py)."""
        await self._pool.fetch(SEEN, name)

    async def check_position(self, session: PostgresSession) -> None:
        """Compare the position that the server follows, on a new connection. Diverged."""
        position = self._position()
        if position is not None:
            row = (await session.fetch(sql.IDENTITY, position.revision, bound=QUICK_BOUND))[0]
            self._confirm(position, rows.head(row), row)

    @staticmethod
    def _confirm(position: Position, head: Head, row: Row) -> None:
        identity = rows.identity(position.revision, row, _AFTER_HEAD)
        position.confirm(identity, newest=head.revision, compacted=head.newest_mark)

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        at = _AFTER_HEAD
        if position is not None and position.revision == after and limit <= FEW:
            at += rows.IDENTITY_WIDTH
            found = await self._pool.fetch(sql.READ_FROM, after, limit, bound=QUICK_BOUND)
            head = self._head(found[0])
            self._confirm(position, head, found[0])
            matching = Chunk([] if found[0][at] is None else found)
        else:
            head, matching = await self._fetch_bounded(sql.READ, after, limit, limit=limit, at=(at,))
        if after < head.newest_mark:
            raise Compacted(after, head.newest_mark)
        records = matching.map(lambda row: rows.record(row, at))
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
        head, matching = await self._fetch_bounded(statement, *arguments, limit=limit, at=at, since=after)
        self._check_retained(resource, after, head)
        return matching.map(lambda row: (rows.record(row, at[0]), rows.replaced(row, *at)))

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        query = within_history(query, await self.head())
        limit = min(limit, max(query.until - query.after, 1))
        statement, arguments = change_sql.statement(query, limit, await self._short_resources())
        change_of, size = change_sql.reader_of(query)
        objects = 2 if query.with_replaced else 1
        found = await fetch_bounded(self._pool, statement, *arguments, limit=limit, size=size, objects=objects)
        return found.map(change_of)

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        head = await self.head()
        queries = [within_history(query, head) for query in queries]
        limit = min(limit, max(1, *(query.until - query.after for query in queries)))
        statement, arguments = change_sql.state_statement(queries, limit, await self._short_resources(), texts)
        found = await self._fetch_states(statement, arguments, limit, small=bool(texts))
        if not queries[0].with_replaced:
            return found.map(lambda state: (state, None))
        known = {state.revision: state for state in found}
        missing = [state.previous_revision for state in found if state.previous_revision not in known]
        before = Chunk[ObjectState]()
        if wanted := [revision for revision in missing if revision]:
            before = await self._fetch_states(
                *change_sql.before_statement(wanted, texts), len(wanted), small=bool(texts)
            )
        known |= {state.revision: state for state in before}
        pairs = found.map(lambda state: (state, known.get(state.previous_revision)))
        if before.cut:  # the pairs end where the objects before have enough bytes
            unread = set(wanted[wanted.index(before[-1].revision) + 1 :])
            complete = [state.previous_revision in unread for state in found].index(True) if unread else len(pairs)
            pairs.cut = pairs.cut or complete < len(pairs)
            del pairs[complete:]
        return pairs

    async def _fetch_states(
        self, statement: str, arguments: Sequence[object], limit: int, *, small: bool
    ) -> Chunk[ObjectState]:
        fetch = partial(
            fetch_bounded, limit=limit, size=change_sql.state_size, objects=1, enough=STATE_BYTES, small=small
        )
        return (await fetch(self._pool, statement, *arguments)).map(change_sql.state_of)

    async def density(self, query: density.DensityQuery) -> list[density.Count]:
        edges = [row[0] for row in await self._pool.fetch(count_sql.EDGES, list(query.edges))]
        changes = within_history(density.within(query.changes, edges), await self.head())
        query = replace(query, changes=changes)
        revisions = query.changes.until - query.changes.after
        density.check_limit(revisions, query)
        statement, arguments = count_sql.counts_over_time(query, edges, await self._short_resources())
        return [density.Count(*row) for row in await self._pool.fetch(statement, *arguments)] if revisions > 0 else []

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        head = await self.head()
        changes = within_history(replace(query.changes, until=min(query.changes.until, head.revision)), head)
        query = replace(query, changes=changes)
        if changes.after >= changes.until:
            return []
        groups.check_limit(changes.after + 1, changes.until, query)
        statement, arguments = count_sql.counts_by_columns(query, await self._short_resources())
        found = await self._pool.fetch(statement, *arguments)
        return [ChangeGroup(tuple(row[:-3]), row[-3], row[-2], row[-1]) for row in map(tuple, found)]

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
        head, matching = await self._fetch_bounded(
            statement, *arguments, limit=limit, at=(_AFTER_HEAD + 1,), since=revision
        )
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
        if isinstance(when, datetime):
            when = min(max(when, _FIRST_TIME), _LAST_TIME)
        arguments = (when, None) if isinstance(when, datetime) else (None, when)
        answer = (await self._pool.fetch(clocks.MOMENT_AT, *arguments, self.clocks.now()))[0]
        revision, moment, clock, known = answer
        if moment > clock:
            raise FutureMoment(moment, clock)
        if revision is None:
            raise BeforeHistory(await self._oldest())
        if not known:
            raise UnknownMoment(moment, revision)
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
            newest = rows.identity(head.revision, (await session.fetch(sql.IDENTITY, head.revision))[0], _AFTER_HEAD)
            head = replace(head, hash=newest.hash if newest is not None else b"")
            empty = True
            for statement in sql.LOAD.values():
                async with aclosing(
                    session.rows(statement, list(short), chunk=LOAD_CHUNK, size=rows.object_size(1 + rows.OBJECT))
                ) as chunks:
                    async for chunk in chunks:
                        if missing := next((row["live"] for row in chunk if row["revision"] is None), None):
                            raise LogCorrupt(f"revision {missing} of a live object is not in the log")
                        empty = False
                        yield head, [rows.record(row, 1) for row in chunk]
            if empty:
                yield head, []

    async def first_revision_since(self, moment: datetime) -> int:
        """Return the first revision committed at or after the moment; if there is none yet, the newest + 1."""
        return int((await self._pool.fetch(sql.FIRST_REVISION_SINCE, moment))[0][0])

    # Helpers

    async def _fetch_with_head(self, statement: str, *arguments: object) -> tuple[Head, list[Row]]:
        """Run a read; return the head and the matching rows, of one snapshot."""
        result = await self._pool.fetch(statement, *arguments)
        return self._head(result[0]), [row for row in result if row[_AFTER_HEAD] is not None]

    async def _fetch_bounded(
        self, statement: str, *arguments: object, limit: int, at: Sequence[int], since: int | None = None
    ) -> tuple[Head, Chunk[Row]]:
        """As ``_fetch_with_head``, bounded by the bytes of the records in the columns from ``at`` on.

        The statement returns at least one row.
        ``since``: the revision that a client knows, perhaps of a lost change. Compacted.
        """
        size = rows.object_size(*(first + rows.OBJECT for first in at))
        result = await fetch_bounded(self._pool, statement, *arguments, limit=limit, size=size, objects=len(at))
        head = self._head(result[0])
        if since is not None and (jumped := result[0]["passed_over"]) is not None:
            raise Compacted(since, jumped)
        result.until = result[0].get("reached") or 0
        if result[0][_AFTER_HEAD] is None:
            result.clear()
        return head, result

    def _head(self, row: Row) -> Head:
        head = rows.head(row)
        self.newest_seen_revision = max(self.newest_seen_revision, head.revision)
        return head

    async def _short_resources(self, session: PostgresSession | None = None) -> tuple[str, ...]:
        if self._short is None:
            self._short = tuple(row[0] for row in await (session or self._pool).fetch(sql.SHORT_RESOURCES))
        return self._short

    async def _class_of(self, resource: str, session: PostgresSession | None = None) -> str:
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
