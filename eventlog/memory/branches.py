"""The changes of branches in memory, for tests; satisfies BranchTable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from uuid import UUID

import trio
from msgspec import structs

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


class _Branch:
    def __init__(self, base: int) -> None:
        self.base = base
        self.rows: list[Record] = []
        self.authors: dict[int, Who] = {}
        self.batches: dict[UUID, datetime] = {}
        self.epoch = 0
        self.erased = False
        self.used_at = datetime.now(UTC)
        self.changed = trio.Event()

    def head(self) -> BranchHead:
        size = sum(map(record_size, self.rows))
        return BranchHead(self.base, self.base + len(self.rows), len(self.rows), size, self.epoch, self.erased)


class MemoryBranches:
    """See the head of this file. All MemoryLogs on a store share it."""

    def __init__(self) -> None:
        self._branches: dict[UUID, _Branch] = {}

    async def open(self, branch: UUID, base: int) -> BranchHead:
        await trio.lowlevel.checkpoint()
        found = self._branches.setdefault(branch, _Branch(base))
        found.used_at = datetime.now(UTC)
        return found.head()

    async def head(self, branch: UUID) -> BranchHead | None:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        return found.head() if found is not None else None

    async def append(
        self, branch: UUID, batch: UUID, epoch: int, records: Sequence[Record], who: Sequence[Who]
    ) -> BranchAnswer:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        if found is None or found.erased:
            return BranchAnswer(BranchOutcome.GONE, 0)
        head = found.head()
        if batch in found.batches:
            return BranchAnswer(BranchOutcome.APPENDED, found.epoch, found.batches[batch])
        if epoch != found.epoch or records[0].revision != head.revision + 1:
            return BranchAnswer(BranchOutcome.BEHIND, found.epoch)
        size, changes = head.bytes + sum(map(record_size, records)), head.changes + len(records)
        if size > MOST_BYTES or changes > MOST_CHANGES:
            return BranchAnswer(BranchOutcome.FULL, found.epoch)
        now = max([datetime.now(UTC), *(row.committed_at for row in found.rows[-1:])])
        for record, author in zip(records, who, strict=True):
            found.rows.append(structs.replace(record, committed_at=now, who=None, decoded=None, mark=None))
            found.authors[record.revision] = author
        found.batches[batch] = found.used_at = now
        found.changed.set()
        found.changed = trio.Event()
        return BranchAnswer(BranchOutcome.APPENDED, found.epoch, now)

    async def settle(self, branch: UUID, batch: UUID) -> BranchAnswer:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        if found is None:
            return BranchAnswer(BranchOutcome.BEHIND, 0)
        if batch in found.batches:
            return BranchAnswer(BranchOutcome.APPENDED, found.epoch, found.batches[batch])
        found.epoch += 1
        return BranchAnswer(BranchOutcome.BEHIND, found.epoch)

    async def read(
        self, branch: UUID, *, after: int, limit: int, until: int = 0, scope: Key = EVERYTHING
    ) -> Chunk[Record]:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        rows = found.rows[max(0, after - found.base) :] if found is not None else []
        wanted = takewhile(lambda row: not until or row.revision <= until, rows)
        chosen = (row for row in wanted if all(part in ("", own) for part, own in zip(scope, row.key, strict=True)))
        return bounded(chosen, limit, record_size)

    async def get_at(self, branch: UUID, key: Key, *, revision: int) -> Record | None:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        rows = reversed(found.rows) if found is not None else iter(())
        return next((row for row in rows if row.key == key and row.revision <= revision), None)

    async def authors(self, branch: UUID, revisions: Sequence[int]) -> Mapping[int, Who]:
        await trio.lowlevel.checkpoint()
        found = self._branches.get(branch)
        return {each: found.authors[each] for each in revisions} if found is not None else {}

    async def note_use(self, branch: UUID) -> None:
        await trio.lowlevel.checkpoint()
        if (found := self._branches.get(branch)) is not None:
            found.used_at = datetime.now(UTC)

    async def unused_since(self) -> Mapping[UUID, datetime]:
        await trio.lowlevel.checkpoint()
        return {branch: found.used_at for branch, found in self._branches.items()}

    async def remove(self, branches: Collection[UUID]) -> None:
        await trio.lowlevel.checkpoint()
        for branch in branches:
            self._branches.pop(branch, None)

    async def wait_changed(self, branch: UUID) -> None:
        found = self._branches.get(branch)
        if found is None:
            await trio.sleep_forever()
        else:
            await found.changed.wait()

    # For tests

    def erase(self) -> None:
        """Drop all changes, as an erasure of history does."""
        for found in self._branches.values():
            found.rows.clear()
            found.erased = True
