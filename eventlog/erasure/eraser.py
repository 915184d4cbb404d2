"""Erasing: taking contents, or who asked, out of rows of the log, of what was copied forward, and of archives.

    async with Eraser.locked(session, wanted, archive=directory) as eraser:
        plan = await eraser.plan()
        done = await eraser.erase(...)

Everything in the database is one transaction: the rows, their tombstones, and the entry of the log that tells of the
erasure (erasures.py). Then the archives are written anew, file by file. Killed in between, the archives still hold what
the database has erased, which verifies; the next time finds it by its tombstones, and goes on.

Nothing is dropped, copied forward or archived meanwhile: the lock of retention is held. Writes go on; the head is
locked only for the entry. Servers hear of the entry as of every other change, and forget what they hold of its
resources (Views.apply).

Invariants: a row is erased from what its tombstones say it is, never from an edited one; the row that is an object's
present state keeps its contents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import trio

from kubechronicle.eventlog.erasure.plan import Done, Plan, Signed, StillThere, Wanted
from kubechronicle.eventlog.errors import LogCorrupt, LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.digests import DIGESTED, encode_row
from kubechronicle.eventlog.integrity.erasures import Erasure, Tombstone, What
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.session import Row, Session
from kubechronicle.eventlog.postgres.shared_appends import shared_appends
from kubechronicle.eventlog.postgres.sql import APPEND
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.retention import archives
from kubechronicle.eventlog.retention.retention import ADVISORY_LOCK

CHUNK: Final = 200  # rows at a time

_NAMES: Final = tuple(name for name, _ in DIGESTED)
# All that holds rows: partitions, also those a killed server has detached and not dropped, and what was copied forward.
_TABLES = """
select c.relname::text as name from pg_class c
where c.relnamespace = to_regnamespace('kubechronicle') and c.relkind = 'r'
    and (c.relname ~ '^log_(long|short)_[0-9]+$' or c.relname = 'kept')
order by c.relname = 'kept', c.relname
"""
# $1 first and $2 last revision; {} the table, and what else must hold.
_FOUND = "from kubechronicle.{} where revision between $1::bigint and $2::bigint and {}"
_SUMMED = f"""
select count(*) as rows, coalesce(sum(octet_length(object::text)), 0)::bigint as bytes, min(revision) as first,
    max(revision) as last, min(committed_at) as oldest, max(committed_at) as newest,
    array_agg(distinct resource) as resources
{_FOUND}
"""
_ROWS = f"select {', '.join(_NAMES)}, digest {_FOUND} order by revision limit {CHUNK}"
_LIVE = "select revision from kubechronicle.live where resource = $1 and namespace = $2 and name = $3"
_UID = """
select uid from (select uid from kubechronicle.log where revision = $1 union all
    select uid from kubechronicle.kept where revision = $1) r limit 1
"""
_TOMBSTONES = """
select revision, erasure::text, was, remains from kubechronicle.erased where revision = any ($1::bigint[])
"""
_ADD = """
insert into kubechronicle.erased (revision, erasure, was, remains)
select u.revision, $1::uuid, u.was, u.remains
from unnest($2::bigint[], $3::bytea[], $4::bytea[]) u (revision, was, remains)
on conflict (revision, erasure) do nothing
"""
_CHANGED = (
    "name",
    "user_name",
    "user_uid",
    "user_groups",
    "user_extra",
    "impersonator",
    "request_uri",
    "user_agent",
    "source_address",
    "audit_id",
    "object",
)
_CASTS: Mapping[str, str] = {"user_groups": "::text[]", "user_extra": "::json", "object": "::json"}
_UPDATE = (
    "update kubechronicle.{} l set "
    + ", ".join(f"{name} = u.{name}{_CASTS.get(name, '')}" for name in _CHANGED)
    + " from unnest($1::bigint[], "
    + ", ".join(f"${place}::text[]" for place in range(2, len(_CHANGED) + 2))
    + f") u (revision, {', '.join(_CHANGED)}) where l.revision = u.revision"
)
_DIGEST = """
select count(*) as rows, min(revision) as first, max(revision) as last, sha256(string_agg(
    int8send(revision) || was || remains, ''::bytea order by revision)) as digest
from kubechronicle.erased where erasure = $1
"""
# What has the names of all: only somebody who analyzes by hand has statistics of the partitioned tables gathered.
_COUNTED = """
select distinct tablename::text as name from pg_stats
where schemaname = 'kubechronicle' and tablename in ('live', 'log', 'log_long', 'log_short')
"""
_ENTRIES = """
select r.object::text as object from kubechronicle.live e cross join lateral (
    select object from kubechronicle.log where revision = e.revision
    union all
    select object from kubechronicle.kept where revision = e.revision limit 1) r
where e.resource = $1
"""
_ARCHIVED = """
select file from kubechronicle.archived a
where first <= $1 and class = any (
    select coalesce((select class from kubechronicle.resource_classes where resource = $2), 'long')
    union all select class from kubechronicle.retention_classes where $2 = '')
order by class, first
"""


@dataclass(slots=True)
class _File:
    """An archive with rows to be written anew: by revision, the erasures that it lacks."""

    archive: archives.Archive
    steps: dict[int, list[tuple[What, str]]] = field(default_factory=dict)


class Eraser:
    """Made by ``locked``."""

    def __init__(self, session: Session, wanted: Wanted, archive: Path | None) -> None:
        self._session = session
        self._wanted = wanted
        self._archive = archive
        self._id = str(uuid4())
        self._tables: list[str] = []
        self._files: list[_File] = []
        self._archived: list[Tombstone] = []  # of archived rows that were not erased before
        self._stays: int | None = None
        self._entries: dict[str, Erasure] = {}

    @classmethod
    @asynccontextmanager
    async def locked(
        cls, session: Session, wanted: Wanted, *, archive: Path | None, waits: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Eraser]:
        """With the lock of retention held, for which it waits; ``waits`` is called if it has to."""
        await session.execute("set statement_timeout = 0")
        if not (await session.fetch("select pg_try_advisory_lock($1)", ADVISORY_LOCK))[0][0]:
            waits()
            await session.fetch("select pg_advisory_lock($1)", ADVISORY_LOCK)
        try:
            head, log_id = (await session.fetch("select revision, log_id from kubechronicle.head"))[0]
            eraser = cls(session, replace(wanted, last=min(wanted.last, head)), archive)
            if archive is not None:
                await trio.to_thread.run_sync(archives.remove_unfinished, archive, log_id)
                for found in await trio.to_thread.run_sync(archives.of_log, archive, log_id):
                    eraser._files.append(_File(found))
            yield eraser
        finally:
            if not session.closed:
                await session.fetch("select pg_advisory_unlock($1)", ADVISORY_LOCK)

    async def plan(self) -> Plan:
        """What there is to erase. StillThere, ArchiveError."""
        await self._check_gone()
        plan = Plan()
        self._tables = [row["name"] for row in await self._session.fetch(_TABLES)]
        condition, given = self._condition()
        for table in self._tables:
            statement = _SUMMED.format(table, condition)
            found = (await self._session.fetch(statement, self._wanted.first, self._wanted.last, *given))[0]
            if found["rows"]:
                plan.rows += found["rows"]
                plan.bytes += found["bytes"]
                plan.resources.update(found["resources"])
                plan.see((found["first"], found["oldest"]), (found["last"], found["newest"]))
        if self._stays is not None and self._wanted.first <= self._stays <= self._wanted.last:
            plan.stays = self._stays
        if self._archive is None:
            unread = await self._session.fetch(_ARCHIVED, self._wanted.last, self._wanted.resource)
            plan.unread = [row["file"] for row in unread]
        else:
            self._entries = {
                each.id: each
                for each in (erasures.parse(row[0]) for row in await self._session.fetch(_ENTRIES, erasures.RESOURCE))
            }
            for file in self._files:
                await self._look_into(file, plan)
            self._files = [file for file in self._files if file.steps]
            plan.files = [file.archive.path.name for file in self._files]
        return plan

    async def erase(self, signed: Signed) -> Done:
        """Do what was planned. StillThere: the object was made again meanwhile; LogCorrupt: a row to be erased was
        edited; ArchiveError: the database is done, and an archive can't be written."""
        done = Done(erasure=None, tables=[])
        async with shared_appends(self._session):
            await self._erase_from_database(done, signed)
        for file in self._files:
            left = _Left(file.steps)
            await trio.to_thread.run_sync(archives.rewrite, file.archive, left)
            done.files += 1
        return done

    async def tidy(self, done: Done) -> None:
        """Give back the space of what was there, so that it is written over; and have the planner's statistics gathered
        anew, in which are the values that were the most common."""
        for table in done.tables:
            await self._session.execute(f"vacuum (truncate false, analyze) {table}")
        for row in await self._session.fetch(_COUNTED):
            await self._session.execute(f"analyze kubechronicle.{row['name']}")

    # The database

    async def _erase_from_database(self, done: Done, signed: Signed) -> None:
        await self._session.execute("begin")
        try:
            await self._check_gone()
            for table in self._tables:
                if await self._erase_in(table):
                    done.tables.append(f"kubechronicle.{table}")
            await self._add(self._archived)
            done.erasure = await self._tell(signed)
            await self._session.execute("commit")
        except LogError:
            if not self._session.closed:
                await self._session.execute("rollback")
            raise

    async def _check_gone(self) -> None:
        """StillThere; and which revision stays in any case."""
        wanted = self._wanted
        if wanted.what == "who":
            return
        live = await self._session.fetch(_LIVE, wanted.resource, wanted.namespace, wanted.name)
        if not live:
            return
        self._stays = live[0][0]
        if wanted.whole and wanted.uid in ("", (await self._session.fetch(_UID, self._stays))[0][0]):
            raise StillThere(f"{wanted.resource} {wanted.name} exists")

    def _condition(self) -> tuple[str, list[str]]:
        condition, given = self._wanted.condition()
        return (f"{condition} and revision <> {self._stays}" if self._stays is not None else condition), given

    async def _erase_in(self, table: str) -> bool:
        """Erase the rows there are in a table, if there are any."""
        condition, given = self._condition()
        after = self._wanted.first - 1
        await self._session.execute(
            "set local enable_seqscan = off; set local enable_hashjoin = off;"
            "set local enable_mergejoin = off; set local jit = off"
        )
        while True:
            statement = _ROWS.format(table, condition)
            found = await self._session.fetch(statement, after + 1, self._wanted.last, *given)
            if not found:
                return after >= self._wanted.first
            await self._erase_rows(table, found)
            after = found[-1]["revision"]

    async def _erase_rows(self, table: str, found: Sequence[Row]) -> None:
        known = await self._tombstones([row["revision"] for row in found])
        tombstones, changed = [], []
        for row in found:
            columns = {name: row[name] for name in _NAMES}
            earlier = [each for each in known.get(row["revision"], ()) if each.erasure != self._id]
            was = _digest(columns)
            had = erasures.states(bytes(row["digest"]), earlier)
            if had is None or had[-1] != was:
                raise LogCorrupt(f"revision {row['revision']} was edited; `kubechronicle verify` tells more")
            columns = erasures.without(columns, self._wanted.what, self._id)
            tombstones.append(Tombstone(row["revision"], self._id, was, _digest(columns)))
            changed.append(columns)
        await self._session.fetch(
            _UPDATE.format(table),
            [columns["revision"] for columns in changed],
            *([_text(columns[name]) for columns in changed] for name in _CHANGED),
        )
        await self._add(tombstones)

    async def _add(self, tombstones: Sequence[Tombstone]) -> None:
        for start in range(0, len(tombstones), 10_000):
            part = tombstones[start : start + 10_000]
            await self._session.fetch(
                _ADD,
                UUID(self._id),
                [each.revision for each in part],
                [each.was for each in part],
                [each.remains for each in part],
            )

    async def _tombstones(self, revisions: Sequence[int]) -> dict[int, list[Tombstone]]:
        found: dict[int, list[Tombstone]] = {}
        for row in await self._session.fetch(_TOMBSTONES, list(revisions)):
            each = Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3]))
            found.setdefault(each.revision, []).append(each)
        return found

    async def _tell(self, signed: Signed) -> Erasure | None:
        """Append the entry that tells of the erasure; None if nothing was erased but before."""
        summed = (await self._session.fetch(_DIGEST, UUID(self._id)))[0]
        if not summed["rows"]:
            return None
        now, role = (await self._session.fetch("select clock_timestamp(), current_user::text"))[0]
        wanted = self._wanted
        name = erasures.pseudonym(self._id) if wanted.what == "object" else wanted.name
        erasure = Erasure(
            id=self._id,
            what=wanted.what,
            resource=wanted.resource,
            namespace=wanted.namespace,
            name=name,
            uid=wanted.uid,
            resources=(wanted.resource,) if wanted.what != "who" else (),
            reason=signed.reason,
            by=signed.by,
            os_user=signed.os_user,
            role=role,
            count=summed["rows"],
            first=summed["first"],
            last=summed["last"],
            digest=bytes(summed["digest"]),
        )
        change = Change(
            key=Key(erasures.RESOURCE, "", erasure.id),
            uid=erasure.id,
            expected=0,
            operation=Operation.CREATE,
            body=rows.storable(erasure.body(now).decode()).encode(),
        )
        who = Who(user=signed.by, verb="erase", user_agent=signed.program)
        batch = Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),))
        answer = await self._session.fetch(APPEND, *rows.batch_arguments(batch))
        return replace(erasure, revision=answer[0]["head"], erased_at=answer[0]["committed_at"])

    # Archives

    async def _look_into(self, file: _File, plan: Plan) -> None:
        """Find the rows of an archive that are to be erased, or were in the database alone."""
        found = archives.rows_of(file.archive)
        while rows_found := await trio.to_thread.run_sync(_some, found, self._wanted, self._stays):
            known = await self._tombstones([row.revision for row in rows_found])
            for row in rows_found:
                self._take(file, row, known.get(row.revision, []), plan)

    def _take(self, file: _File, row: ArchivedRow, known: Sequence[Tombstone], plan: Plan) -> None:
        had = erasures.states(row.digest, known)
        if had is None or row.content not in had:
            raise LogCorrupt(f"revision {row.revision} was edited; `kubechronicle verify` tells more")
        columns, steps = row.columns, file.steps.setdefault(row.revision, [])
        for state in had[had.index(row.content) + 1 :]:
            erasure = self._entries.get(next(each.erasure for each in known if each.remains == state))
            if erasure is None:
                raise LogCorrupt(f"revision {row.revision} was erased by nobody; `kubechronicle verify` tells more")
            columns = erasures.without(columns, erasure.what, erasure.id)
            steps.append((erasure.what, erasure.id))
        if not self._wanted.matches(columns):
            plan.pending += 1
            return
        was = _digest(columns)
        columns = erasures.without(columns, self._wanted.what, self._id)
        steps.append((self._wanted.what, self._id))
        self._archived.append(Tombstone(row.revision, self._id, was, _digest(columns)))
        plan.archived += 1
        plan.bytes += len(row.columns["object"])
        plan.resources.add(row.columns["resource"])
        plan.see((row.revision, row.columns["committed_at"]))


class _Left:
    """What is left of an archived row."""

    def __init__(self, steps: Mapping[int, Sequence[tuple[What, str]]]) -> None:
        self._steps = steps

    def __call__(self, row: ArchivedRow) -> Mapping[str, Any] | None:
        steps = self._steps.get(row.revision)
        if steps is None:
            return None
        columns: Mapping[str, Any] = row.columns
        for what, erasure in steps:
            columns = erasures.without(columns, what, erasure)
        return columns


def _some(found: Iterator[ArchivedRow], wanted: Wanted, stays: int | None) -> list[ArchivedRow]:
    """The next rows that are meant; [] at the end."""
    some: list[ArchivedRow] = []
    for row in found:
        if wanted.matches(row.columns) and row.revision != stays:
            some.append(row)
            if len(some) == CHUNK:
                break
    return some


def _digest(columns: Mapping[str, Any]) -> bytes:
    return sha256(encode_row([columns[name] for name in _NAMES])).digest()


def _text(value: Any) -> str | None:
    """As a parameter: lists as array literals, since arrays of arrays must be rectangular."""
    if not isinstance(value, list):
        return value  # type: ignore[no-any-return]
    return "{" + ",".join('"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in value) + "}"
