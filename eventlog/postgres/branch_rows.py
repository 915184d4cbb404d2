"""The changes of branches in Postgres (queries/branches.py): statements, rows, and the BranchTable over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import trio

from kubechronicle.eventlog.errors import OutcomeUnknown
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.listener import Listener
from kubechronicle.eventlog.postgres.session import ConnectionLost, Row, SessionPool
from kubechronicle.eventlog.postgres.sql import RECORD_COLUMNS
from kubechronicle.eventlog.queries.branches import (
    EVERYTHING,
    MOST_BYTES,
    MOST_CHANGES,
    BranchAnswer,
    BranchHead,
    BranchOutcome,
)
from kubechronicle.eventlog.queries.changes import Chunk, bounded, record_size
from kubechronicle.eventlog.records import Key, Record, Who

MOST_ROWS: Final = 200
"""Rows of one read: each may have a large object."""
POLL_SECONDS: Final = 1.0
"""A notification may be lost; then another server's changes of a branch are seen after this time."""

_HEAD_COLUMNS: Final = "base, revision, changes, bytes, epoch, erased"
# $1 branch, $2 base.
_OPEN: Final = f"""
insert into kubechronicle.branches as b (id, base, revision) values ($1, $2, $2)
on conflict (id) do update set used_at = clock_timestamp() returning {_HEAD_COLUMNS}
"""
_HEAD: Final = f"select {_HEAD_COLUMNS} from kubechronicle.branches where id = $1"
_APPEND: Final = f"select * from kubechronicle.append_to_branch({', '.join(f'${place}' for place in range(1, 17))})"
_SETTLE: Final = "select * from kubechronicle.settle_in_branch($1, $2)"
# $1 branch, $2 revision to begin after, $3 the last one, $4 resource, $5 namespace and $6 name ("": any), $7 limit.
# Cost: a range of the primary key.
_READ: Final = f"""
select {RECORD_COLUMNS} from kubechronicle.branch_changes
where branch = $1 and revision > $2 and revision <= $3 and ($4 = '' or resource = $4)
    and ($5 = '' or namespace = $5) and ($6 = '' or name = $6)
order by revision limit $7
"""
# $1 branch, $2 resource, $3 namespace, $4 name, $5 revision. Cost: one row of an index.
_GET_AT: Final = f"""
select {RECORD_COLUMNS} from kubechronicle.branch_changes
where branch = $1 and resource = $2 and namespace = $3 and name = $4 and revision <= $5 order by revision desc limit 1
"""
_AUTHORS: Final = "select revision, author from kubechronicle.branch_changes where branch = $1 and revision = any ($2)"
_NOTE_USE: Final = "update kubechronicle.branches set used_at = clock_timestamp() where id = $1"
_UNUSED: Final = "select id, used_at from kubechronicle.branches"
_REMOVE: Final = "delete from kubechronicle.branches where id = any ($1::uuid[])"
_END: Final = 2**63 - 1


class BranchRows:
    """The changes of branches, over a pool of connections of their own.

    ``shared``: the pool of other reads, for looks whether there are branches. ``listener``: hears of other servers.
    """

    def __init__(self, pool: SessionPool, shared: SessionPool, listener: Listener) -> None:
        self._pool = pool
        self._shared = shared
        self._listener = listener

    async def open(self, branch: UUID, base: int) -> BranchHead:
        return BranchHead(*(await self._pool.fetch(_OPEN, branch, base))[0])

    async def head(self, branch: UUID) -> BranchHead | None:
        found = await self._pool.fetch(_HEAD, branch)
        return BranchHead(*found[0]) if found else None

    async def append(
        self, branch: UUID, batch: UUID, epoch: int, records: Sequence[Record], who: Sequence[Who]
    ) -> BranchAnswer:
        columns: list[list[Any]] = [
            [record.revision for record in records],
            *([record.key[place] for record in records] for place in range(3)),
            [record.uid for record in records],
            [record.create_revision for record in records],
            [record.version for record in records],
            [record.previous_revision for record in records],
            [int(record.operation) for record in records],
            [record.body.decode() for record in records],
            [_author(each) for each in who],
        ]
        try:
            # The pool may send it twice: the second time finds the batch, and has the same answer.
            return _answer(
                (await self._pool.fetch(_APPEND, branch, batch, epoch, MOST_BYTES, MOST_CHANGES, *columns))[0]
            )
        except ConnectionLost as lost:
            raise OutcomeUnknown(batch) from lost

    async def settle(self, branch: UUID, batch: UUID) -> BranchAnswer:
        return _answer((await self._pool.fetch(_SETTLE, branch, batch))[0])

    async def read(
        self, branch: UUID, *, after: int, limit: int, until: int = 0, scope: Key = EVERYTHING
    ) -> Chunk[Record]:
        most = min(limit, MOST_ROWS)
        found = await self._pool.fetch(_READ, branch, after, until or _END, *scope, most)
        chunk = bounded((rows.record(row, 0) for row in found), limit, record_size)
        chunk.cut = chunk.cut or most == len(found) < limit
        return chunk

    async def get_at(self, branch: UUID, key: Key, *, revision: int) -> Record | None:
        found = await self._pool.fetch(_GET_AT, branch, *key, revision)
        return rows.record(found[0], 0) if found else None

    async def authors(self, branch: UUID, revisions: Sequence[int]) -> Mapping[int, Who]:
        found = await self._pool.fetch(_AUTHORS, branch, list(revisions))
        return {row["revision"]: msgspec.json.decode(row["author"], type=Who) for row in found}

    async def note_use(self, branch: UUID) -> None:
        await self._pool.fetch(_NOTE_USE, branch)

    async def unused_since(self) -> Mapping[UUID, datetime]:
        return {row["id"]: row["used_at"] for row in await self._shared.fetch(_UNUSED)}

    async def remove(self, branches: Collection[UUID]) -> None:
        await self._shared.fetch(_REMOVE, list(branches))

    async def wait_changed(self, branch: UUID) -> None:
        with trio.move_on_after(POLL_SECONDS):
            await self._listener.wait_branch(str(branch))


def _answer(row: Row) -> BranchAnswer:
    return BranchAnswer(BranchOutcome(row["outcome"]), row["epoch"], row["committed_at"])


def _author(who: Who) -> str:
    """Return the author as JSON that Postgres can store."""
    texts = {name: rows.storable(value) if isinstance(value, str) else value for name, value in _fields(who)}
    texts["groups"] = [rows.storable(group) for group in who.groups]
    texts["extra"] = {
        rows.storable(key): [rows.storable(value) for value in values] for key, values in who.extra.items()
    }
    return msgspec.json.encode(texts).decode()


def _fields(who: Who) -> list[tuple[str, Any]]:
    return [(name, getattr(who, name)) for name in Who.__struct_fields__]
