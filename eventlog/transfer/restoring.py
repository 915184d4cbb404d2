"""Restoring a backup into an empty log, whole or as of an earlier revision. The chain is proved while it is read.

As of revision N, the rows up to N are restored, with the objects that existed then. Resources whose history begins
after N (events, leases) have only those of their objects that have not changed since. ``RestoredLog.partial`` has them.
Branches over N or an earlier revision have their changes as of the backup.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

import orjson
import trio

from kubechronicle.eventlog.errors import LogError, SetupError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import Tombstone
from kubechronicle.eventlog.integrity.jumps import parse
from kubechronicle.eventlog.integrity.verify import StoredJump
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.transfer.backup_file import Digests, Header, Item, KeptHistory, Reader, TableRow
from kubechronicle.eventlog.transfer.checking import BackupCheck
from kubechronicle.eventlog.transfer.loader import Loader, loading
from kubechronicle.eventlog.transfer.stored_rows import StoredRow

CHUNK: Final = 500
"""Items read at once, in a thread; rows among them are inserted by one statement."""
_TABLE: Final = {
    "archived": "insert into kubechronicle.archived select r.* from jsonb_populate_recordset("
    "null::kubechronicle.archived, $1::jsonb) r",
    "reads": "insert into kubechronicle.reads (at, revision, resource, subresource, namespace, name, verb, form,"
    " user_name, user_uid, user_groups, impersonator, request_uri, user_agent, source_address, audit_id)"
    " select r.at, r.revision, r.resource, r.subresource, r.namespace, r.name, r.verb, r.form, r.user_name, r.user_uid,"
    " r.user_groups, r.impersonator, r.request_uri, r.user_agent, r.source_address, r.audit_id"
    " from jsonb_populate_recordset(null::kubechronicle.reads, $1::jsonb) r",
    "read_recordings": "insert into kubechronicle.read_recordings select r.* from jsonb_populate_recordset("
    "null::kubechronicle.read_recordings, $1::jsonb) r",
    "mark_moves": "insert into kubechronicle.mark_moves select r.* from jsonb_populate_recordset("
    "null::kubechronicle.mark_moves, $1::jsonb) r",
    # Used now: otherwise those of an old backup would count as unused, and be deleted.
    "branches": "insert into kubechronicle.branches (id, base, revision, changes, bytes, epoch, erased, committed_at)"
    " select r.id, r.base, r.revision, r.changes, r.bytes, r.epoch, r.erased, r.committed_at"
    " from jsonb_populate_recordset(null::kubechronicle.branches, $1::jsonb) r",
    "branch_changes": "insert into kubechronicle.branch_changes select r.* from jsonb_populate_recordset("
    "null::kubechronicle.branch_changes, $1::jsonb) r",
}


_EMPTY_PARTITIONS: Final = """
select i.inhrelid::regclass::text from pg_inherits i
where i.inhparent in ('kubechronicle.log_long'::regclass, 'kubechronicle.log_short'::regclass)
"""
_CLASS: Final = """
update kubechronicle.retention_classes set span = $2, partitioned_until = $3, dropped_until = $4 where class = $1
"""
_RESOURCES: Final = """
insert into kubechronicle.resource_classes select key, value from jsonb_each_text($1::jsonb)
"""
_CONFIDENTIAL: Final = "insert into kubechronicle.confidential_resources select unnest($1::text[])"


# $1 rows of reads. A row in the default partition would later be in the way of the partition of its week.
_WEEKS: Final = """
select kubechronicle.make_reads_partition(w.week) from (
    select distinct date_trunc('week', (r ->> 'at')::timestamptz at time zone 'UTC') at time zone 'UTC' as week
    from jsonb_array_elements($1::jsonb) r) w
"""


class Damaged(LogError):
    """The backup contradicts itself; the message has the revision."""


class BadTarget(LogError):
    """The backup cannot be restored to that revision; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredLog:
    """The result. ``partial``: resources of which only a part of the objects is known."""

    revision: int
    hash: bytes
    committed_at: datetime
    rows: int
    objects: int
    partial: tuple[str, ...] = ()


def revision_at(reader: Reader, moment: datetime) -> int:
    """Return the newest revision in the backup that was committed at the moment or before. BadTarget, BackupError."""
    if moment > reader.header.taken_at:
        raise BadTarget(f"the backup was taken at {reader.header.taken_at.isoformat()}, before {moment.isoformat()}")
    if moment >= reader.header.committed_at:
        return reader.header.revision
    found = 0
    for item in reader.items():
        if isinstance(item, StoredRow):
            if item["committed_at"] > moment:
                break
            found = item["revision"]
    if not found:
        raise BadTarget(f"the backup has no history of {moment.isoformat()}")
    return found


async def restore(
    session: PostgresSession, reader: Reader, *, revision: int, migration: int, progress: Callable[[int, int], None]
) -> RestoredLog:
    """Restore into the empty log of ``session``, or leave it empty. Damaged, BadTarget, BackupError, SetupError.

    ``revision``: the state to restore; that of the header for all.
    ``migration``: the newest one of this database.
    """
    header = reader.header
    if header.migration > migration:
        raise SetupError(
            f"the backup was made by a newer kubechronicle (migration {header.migration}, known here: {migration}); "
            "upgrade this one"
        )
    if not 0 < revision <= header.revision:
        raise BadTarget(f"the backup has the revisions up to {header.revision}, not {revision}")
    if revision < header.compacted:
        raise BadTarget(f"the history in the backup begins at revision {header.compacted}, after {revision}")
    async with loading(session) as loader:
        await _prepare(loader, header)
        work = _Restoring(loader, revision, BackupCheck(header, whole=revision == header.revision))
        items = reader.items()
        while batch := await trio.to_thread.run_sync(_take, items):
            await work.add(batch)
            progress(work.check.chain.revision, revision)
        done = await work.finish()
        if header.drops is None or revision < header.revision:
            await session.fetch("select kubechronicle.record_earlier_drops()")
        return done


def _take(items: Iterator[Item]) -> list[Item]:
    return list(islice(items, CHUNK))


async def _prepare(loader: Loader, header: Header) -> None:
    """Make the partitions of the saved log in the place of those of an empty one, and copy the tables of classes."""
    session = loader.session
    await loader.become(header.log_id)
    for row in await session.fetch(_EMPTY_PARTITIONS):
        await session.execute(f"drop table {row[0]}")
    for retention_class, first, until in header.partitions:
        parent, child = f"kubechronicle.log_{retention_class}", f"kubechronicle.log_{retention_class}_{first}"
        await session.execute(
            f"create table {child} (like {parent} including defaults including constraints including compression);"
            f"alter table {parent} attach partition {child} for values from ({first}) to ({until})"
        )
    for retention_class, span in header.spans.items():
        bounds = header.partitioned_until[retention_class], header.dropped_until[retention_class]
        await session.fetch(_CLASS, retention_class, span, *bounds)
    await loader.begin_partitions(0)
    await session.execute(
        "delete from kubechronicle.resource_classes; delete from kubechronicle.confidential_resources"
    )
    await session.fetch(_RESOURCES, orjson.dumps(dict(header.classes)).decode())
    await session.fetch(_CONFIDENTIAL, list(header.confidential))


@dataclass(slots=True)
class _Restoring:
    """One restore, up to ``target``. Later items are only read, so that the file is proved to be whole."""

    loader: Loader
    target: int
    check: BackupCheck
    committed_at: datetime | None = None
    objects: int = 0
    branches: set[str] = field(default_factory=set)

    async def add(self, batch: list[Item]) -> None:
        """Prove and insert items: rows of the same kind together."""
        for kind, group in groupby(batch, key=type):
            wanted = [cut for item in group if (cut := self._until_target(item)) is not None]
            for item in wanted:
                if problem := self.check.add(item):
                    raise Damaged(f"revision {problem.revision}: {problem.message}")
            if wanted:
                await self._insert(kind, wanted)

    def _until_target(self, item: Item) -> Item | None:
        """Return the part of an item that belongs to the target; None: nothing. BadTarget."""
        if isinstance(item, Digests):
            count = bisect_right(item.revisions, self.target)
            return Digests(item.revisions[:count], item.digests[:count], item.classes[:count]) if count else None
        if isinstance(item, StoredJump):
            if item.revision <= self.target < item.last:
                raise BadTarget(f"there is no revision {self.target}; the next one is {item.last}")
            return item if item.last <= self.target else None
        if isinstance(item, TableRow):
            return item if self._is_wanted(item) else None
        row = item.row if isinstance(item, KeptHistory) else item
        if isinstance(row, StoredRow) and row["resource"] == erasures.RESOURCE and row["revision"] > self.target:
            recorded = f"contents were erased later, as revision {row['revision']} records"
            raise BadTarget(f"{recorded}; restore that revision or a later one")
        revision = row.revision if isinstance(row, Tombstone) else row["revision"]
        return item if revision <= self.target else None

    def _is_wanted(self, row: TableRow) -> bool:
        """Tell whether a row of a table belongs to the target. Branches have revisions of their own above the base."""
        if row.table == "branch_changes":
            return row.columns["branch"] in self.branches
        if row.table != "branches":
            return int(row.columns.get("revision", 0)) <= self.target
        if row.columns["base"] > self.target:
            return False
        self.branches.add(row.columns["id"])
        return True

    async def _insert(self, kind: type[Any], items: list[Any]) -> None:
        if kind is StoredRow:
            await self.loader.add_rows(items)
            self.committed_at = items[-1]["committed_at"]
        elif kind is KeptHistory:
            await self.loader.add_kept([item.row for item in items])
        elif kind is Tombstone:
            await self.loader.add_erased(items)
        elif kind is Digests:
            for item in items:
                await self.loader.add_digests(item.revisions, item.digests, item.classes)
        elif kind is StoredJump:
            for item in items:
                await self.loader.add_jump(parse(item.revision, item.last, item.about), item.hash)
        else:
            # By branch: its objects have at most MOST_BYTES, and a value of jsonb 256 MiB.
            for (table, _), rows in groupby(items, key=lambda item: (item.table, item.columns.get("branch"))):
                lines = orjson.dumps([dict(row.columns) for row in rows]).decode()
                if table == "reads":
                    await self.loader.session.fetch(_WEEKS, lines)
                await self.loader.session.fetch(_TABLE[table], lines)

    async def finish(self) -> RestoredLog:
        """Set the head. Damaged."""
        header, chain = self.check.header, self.check.chain
        whole = self.target == header.revision
        problem = self.check.finish() if whole else chain.finish(self.target, chain.hash, chain.current)
        if problem:
            raise Damaged(f"revision {problem.revision}: {problem.message}")
        committed_at = header.committed_at if whole or self.committed_at is None else self.committed_at
        marks = {resource: min(mark, self.target) for resource, mark in header.compacted_of.items()}
        await self.loader.finish(
            revision=self.target,
            hash_=chain.hash,
            committed_at=committed_at,
            compacted=header.compacted,
            compacted_of=marks,
        )
        return RestoredLog(
            revision=self.target,
            hash=chain.hash,
            committed_at=committed_at,
            rows=chain.rows,
            objects=len(chain.current),
            partial=tuple(sorted(name for name, mark in header.compacted_of.items() if mark > self.target)),
        )
