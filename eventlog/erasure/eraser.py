"""Eraser: removes contents or users from rows of the log, from rows copied forward, and from archives.

    async with Eraser.locked(session, request, archive=directory) as eraser:
        plan = await eraser.plan()
        result = await eraser.erase(...)

All changes in the database are one transaction: the rows, their tombstones, and the entry of the log that records the
erasure (integrity/erasures.py). Then the archives are rewritten, file by file. After a crash in between, the archives
still hold the erased data, and history still verifies. The next run finds these rows by their tombstones, and
continues.

The lock of retention is held, so nothing is dropped, copied forward or archived meanwhile. Writes continue; the head is
locked only for the entry. Servers receive the entry as every other change, and drop the history of its resources from
memory (Views.apply).

A Tag names its user in its contents. With the user, this name is erased in all rows of Tags. A present Tag is also
appended anew without the name, so that servers have it so in memory: it keeps its name, revision and time.

Invariants: only a row that matches its tombstones is erased, never an edited one. The row with an object's present
state keeps its contents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import trio

from kubechronicle.eventlog.erasure import statements
from kubechronicle.eventlog.erasure.archived import ErasedFile, Rewriter, next_matching, step_to
from kubechronicle.eventlog.erasure.holds import Holds, SelectorReader
from kubechronicle.eventlog.erasure.plan import ErasureAuthor, ErasurePlan, ErasureRequest, ErasureResult, ObjectExists
from kubechronicle.eventlog.errors import LogCorrupt, LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.digests import columns_digest
from kubechronicle.eventlog.integrity.erasures import ErasedPart, Erasure, Tombstone
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.locks import MAINTENANCE, held, shared_appends
from kubechronicle.eventlog.postgres.session import PostgresSession, Row
from kubechronicle.eventlog.postgres.sql import APPEND
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Rejected, Transaction, Who
from kubechronicle.eventlog.retention import archives


class Eraser:
    """One erasure. Made by ``locked``."""

    def __init__(
        self, session: PostgresSession, request: ErasureRequest, archive: Path | None, selector_of: SelectorReader
    ) -> None:
        self._session = session
        self._request = request
        self._holds = Holds(session, request, selector_of, archives_read=archive is not None)
        self._archive = archive
        self._id = str(uuid4())
        self._tables: list[str] = []
        self._files: list[ErasedFile] = []
        self._archived: list[Tombstone] = []  # of archived rows that are erased now
        self._stays: int | None = None
        self._entries: dict[str, Erasure] = {}
        self._with_tags = False  # contents of Tags are among the erased parts

    @classmethod
    @asynccontextmanager
    async def locked(
        cls,
        session: PostgresSession,
        request: ErasureRequest,
        *,
        archive: Path | None,
        selector_of: SelectorReader,
        on_wait: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Eraser]:
        """Hold the lock of retention within the block. ``on_wait`` is called if the lock is held by another.

        ``selector_of``: reads the label selectors of legal holds.
        """
        await session.execute("set statement_timeout = 0")
        async with held(session, MAINTENANCE, on_wait=on_wait):
            head, log_id = (await session.fetch("select revision, log_id from kubechronicle.head"))[0]
            eraser = cls(session, replace(request, last=min(request.last, head)), archive, selector_of)
            if archive is not None:
                await trio.to_thread.run_sync(archives.remove_unfinished, archive, log_id)
                for existing in await trio.to_thread.run_sync(archives.of_log, archive, log_id):
                    eraser._files.append(ErasedFile(existing))
            yield eraser

    async def plan(self) -> ErasurePlan:
        """Find the rows to erase. UnderLegalHold, ObjectExists, ArchiveError."""
        self._tables = [row["name"] for row in await self._session.fetch(statements.TABLES)]
        await self._holds.check(self._tables)
        await self._check_gone()
        plan = ErasurePlan()
        condition, arguments = self._condition()
        for table in self._tables:
            statement = statements.TOTALS.format(table, condition)
            totals = (await self._session.fetch(statement, self._request.first, self._request.last, *arguments))[0]
            if totals["rows"]:
                plan.rows += totals["rows"]
                plan.bytes += totals["bytes"]
                plan.resources.update(totals["resources"])
                plan.extend((totals["first"], totals["oldest"]), (totals["last"], totals["newest"]))
        if self._request.scope == "who":
            plan.tags = [row["name"] for row in await self._session.fetch(statements.ENCRYPTED_TAGS)]
        if self._stays is not None and self._request.first <= self._stays <= self._request.last:
            plan.stays = self._stays
        if self._archive is None:
            unread = await self._session.fetch(statements.ARCHIVED_FILES, self._request.last, self._request.resource)
            plan.unread = [row["file"] for row in unread]
        else:
            self._entries = {
                entry.id: entry
                for entry in (
                    erasures.parse(row[0]) for row in await self._session.fetch(statements.ENTRIES, erasures.RESOURCE)
                )
            }
            for file in self._files:
                await self._plan_archive(file, plan)
            await self._holds.check_archived()
            self._files = [file for file in self._files if file.steps]
            plan.files = [file.archive.path.name for file in self._files]
        return plan

    async def erase(self, author: ErasureAuthor) -> ErasureResult:
        """Erase the planned rows.

        UnderLegalHold: a hold began meanwhile. ObjectExists: the object was created again meanwhile. LogCorrupt: a row
        to erase was edited. ArchiveError: the database is erased, but an archive cannot be written.
        """
        result = ErasureResult(erasure=None, tables=[])
        async with shared_appends(self._session):
            await self._erase_from_database(result, author)
        for file in self._files:
            await trio.to_thread.run_sync(archives.rewrite, file.archive, Rewriter(file.steps))
            result.files += 1
        return result

    async def vacuum(self, result: ErasureResult) -> None:
        """Free the space of the old rows, so that it is overwritten; refresh the planner's statistics, which hold the
        most common values."""
        for table in result.tables:
            await self._session.execute(f"vacuum (truncate false, analyze) {table}")
        for row in await self._session.fetch(statements.ANALYZED_TABLES):
            await self._session.execute(f"analyze kubechronicle.{row['name']}")

    # The database

    async def _erase_from_database(self, result: ErasureResult, author: ErasureAuthor) -> None:
        await self._session.execute("begin")
        try:
            await self._check_gone()
            tags = await self._present_tags()
            for table in self._tables:
                if await self._erase_in(table):
                    result.tables.append(f"kubechronicle.{table}")
            if await self._erase_reads():
                result.tables.append("kubechronicle.reads")
            if (await self._session.fetch(statements.ERASE_BRANCHES))[0][0]:
                result.tables.append("kubechronicle.branch_changes")
            await self._add(self._archived)
            result.erasure = await self._append_entry(author, tags)
            await self._holds.check_new()
            await self._session.execute("commit")
        except LogError:
            if not self._session.closed:
                await self._session.execute("rollback")
            raise

    async def _present_tags(self) -> list[Change]:
        """Return an update of each present Tag that names the user, by which the servers learn its new contents."""
        request = self._request
        if request.scope != "who":
            return []
        found = await self._session.fetch(statements.TAGS_OF, request.user, request.first, request.last)
        return [
            Change(
                key=Key(row["resource"], row["namespace"], row["name"]),
                uid=row["uid"],
                expected=row["revision"],
                operation=Operation.UPDATE,
                body=erasures.erased_columns({name: row[name] for name in statements.NAMES}, "tag", self._id)[
                    "object"
                ].encode(),
            )
            for row in found
        ]

    async def _erase_reads(self) -> int:
        """Erase the user, or the name of the object, from recorded reads, and return their number."""
        request = self._request
        if request.scope == "who":
            found = await self._session.fetch(statements.ERASE_READER, request.user, request.first, request.last)
        elif request.scope == "object":
            key = (request.resource, request.namespace, request.name)
            found = await self._session.fetch(statements.ERASE_READ_NAME, request.first, request.last, *key)
        else:
            return 0
        return int(found[0][0])

    async def _check_gone(self) -> None:
        """Note the revision of the present state, which stays. ObjectExists: the whole object is to be erased."""
        request = self._request
        if request.scope == "who":
            return
        live = await self._session.fetch(statements.LIVE_REVISION, request.resource, request.namespace, request.name)
        if not live:
            return
        self._stays = live[0][0]
        if request.whole and request.uid in ("", (await self._session.fetch(statements.UID_OF, self._stays))[0][0]):
            raise ObjectExists(f"{request.resource} {request.name} exists")

    def _condition(self) -> tuple[str, list[str]]:
        condition, arguments = self._request.condition()
        return (f"{condition} and revision <> {self._stays}" if self._stays is not None else condition), arguments

    async def _erase_in(self, table: str) -> bool:
        """Erase the matching rows of a table; return whether there were any."""
        condition, arguments = self._condition()
        after = self._request.first - 1
        await self._session.execute(
            "set local enable_seqscan = off; set local enable_hashjoin = off;"
            "set local enable_mergejoin = off; set local jit = off"
        )
        while True:
            statement = statements.ROWS.format(table, condition)
            chunk = await self._session.fetch(statement, after + 1, self._request.last, *arguments)
            if not chunk:
                return after >= self._request.first
            await self._erase_rows(table, chunk)
            after = chunk[-1]["revision"]

    async def _erase_rows(self, table: str, chunk: Sequence[Row]) -> None:
        known = await self._tombstones([row["revision"] for row in chunk])
        tombstones, changed = [], []
        for row in chunk:
            columns = {name: row[name] for name in statements.NAMES}
            part = self._part(columns)
            assert part is not None
            earlier = [each for each in known.get(row["revision"], ()) if each.erasure != self._id]
            digests = erasures.digest_history(bytes(row["digest"]), earlier)
            was = columns_digest(columns, digests or ())
            if digests is None or digests[-1] != was:
                raise LogCorrupt(f"revision {row['revision']} was edited; `kubechronicle verify` shows details")
            columns = erasures.erased_columns(columns, part, self._id)
            tombstones.append(Tombstone(row["revision"], self._id, was, columns_digest(columns)))
            changed.append(columns)
        await self._session.fetch(
            statements.UPDATE_ROWS.format(table),
            [columns["revision"] for columns in changed],
            *([_text(columns[name]) for columns in changed] for name in statements.CHANGED_COLUMNS),
        )
        await self._add(tombstones)

    def _part(self, columns: erasures.Columns) -> ErasedPart | None:
        """Return the part to erase of a row; None: none."""
        part = self._request.part(columns)
        self._with_tags = self._with_tags or part in ("tag", "who and tag")
        return part

    async def _add(self, tombstones: Sequence[Tombstone]) -> None:
        for start in range(0, len(tombstones), 10_000):
            part = tombstones[start : start + 10_000]
            await self._session.fetch(
                statements.ADD_TOMBSTONES,
                UUID(self._id),
                [each.revision for each in part],
                [each.was for each in part],
                [each.remains for each in part],
            )

    async def _tombstones(self, revisions: Sequence[int]) -> dict[int, list[Tombstone]]:
        by_revision: dict[int, list[Tombstone]] = {}
        for row in await self._session.fetch(statements.TOMBSTONES, list(revisions)):
            each = Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3]))
            by_revision.setdefault(each.revision, []).append(each)
        return by_revision

    async def _append_entry(self, author: ErasureAuthor, tags: Sequence[Change]) -> Erasure | None:
        """Append the present Tags, and the entry that records the erasure; None: every row was erased before."""
        totals = (await self._session.fetch(statements.ERASURE_DIGEST, UUID(self._id)))[0]
        if not totals["rows"]:
            return None
        now, role = (await self._session.fetch("select clock_timestamp(), current_user::text"))[0]
        request = self._request
        name = erasures.pseudonym(self._id) if request.scope == "object" else request.name
        erasure = Erasure(
            id=self._id,
            scope=request.scope,
            resource=request.resource,
            namespace=request.namespace,
            name=name,
            uid=request.uid,
            resources=(request.resource,) if request.scope != "who" else (erasures.TAGS,) if self._with_tags else (),
            reason=author.reason,
            by=author.by,
            os_user=author.os_user,
            role=role,
            count=totals["rows"],
            first=totals["first"],
            last=totals["last"],
            digest=bytes(totals["digest"]),
        )
        change = Change(
            key=Key(erasures.RESOURCE, "", erasure.id),
            uid=erasure.id,
            expected=0,
            operation=Operation.CREATE,
            body=rows.storable(erasure.body(now).decode()).encode(),
        )
        who = Who(user=author.by, verb="erase", user_agent=author.program)
        # The entry is the last one: a server that applies it has the Tags without the user.
        batch = Batch(id=uuid4(), transactions=(Transaction(changes=(*tags, change), who=who),))
        answer = (await self._session.fetch(APPEND, *rows.batch_arguments(batch)))[0]
        for outcome in rows.batch_result(batch, answer).outcomes:
            if isinstance(outcome, Rejected):
                raise LogError(f"the Tag {outcome.key.name} was changed meanwhile, so nothing was erased")
        return replace(erasure, revision=answer["head"], erased_at=answer["committed_at"])

    # Archives

    async def _plan_archive(self, file: ErasedFile, plan: ErasurePlan) -> None:
        """Find the rows of an archive to erase, and those that are erased only in the database."""
        archived = self._holds.checked(archives.rows_of(file.archive))
        while chunk := await trio.to_thread.run_sync(next_matching, archived, self._request, self._stays):
            known = await self._tombstones([row.revision for row in chunk])
            for row in chunk:
                self._plan_row(file, row, known.get(row.revision, []), plan)

    def _plan_row(self, file: ErasedFile, row: ArchivedRow, known: Sequence[Tombstone], plan: ErasurePlan) -> None:
        digests = erasures.digest_history(row.digest, known)
        if digests is None or row.content not in digests:
            raise LogCorrupt(f"revision {row.revision} was edited; `kubechronicle verify` shows details")
        columns, steps = row.columns, file.steps.setdefault(row.revision, [])
        for digest in digests[digests.index(row.content) + 1 :]:
            erasure = self._entries.get(next(each.erasure for each in known if each.remains == digest))
            if erasure is None:
                raise LogCorrupt(
                    f"no erasure of revision {row.revision} is recorded; `kubechronicle verify` shows details"
                )
            part, columns = step_to(digest, columns, erasure)
            steps.append((part, erasure.id))
        wanted = self._part(columns)
        if wanted is None:
            plan.pending += 1
            return
        was = columns_digest(columns, digests)
        columns = erasures.erased_columns(columns, wanted, self._id)
        steps.append((wanted, self._id))
        self._archived.append(Tombstone(row.revision, self._id, was, columns_digest(columns)))
        plan.archived += 1
        plan.bytes += len(row.columns["object"])
        plan.resources.add(row.columns["resource"])
        plan.extend((row.revision, row.columns["committed_at"]))


def _text(value: Any) -> str | None:
    """Return a value as a parameter: lists as array literals, since arrays of arrays must be rectangular."""
    if not isinstance(value, list):
        return value  # type: ignore[no-any-return]
    return "{" + ",".join('"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in value) + "}"
