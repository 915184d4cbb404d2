"""MemoryStore: the database behind MemoryLog, with the same rules of commit, compaction and history as Postgres.

Invariant: the store changes only in functions without await, so every call sees a committed state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol
from uuid import UUID, uuid4

import trio
from msgspec import structs

from kubechronicle.eventlog.errors import (
    BeforeHistory,
    Compacted,
    FutureMoment,
    FutureRevision,
    LogUnavailable,
)
from kubechronicle.eventlog.memory.branches import MemoryBranches
from kubechronicle.eventlog.positions import RowIdentity, identity_of
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording
from kubechronicle.eventlog.records import (
    Batch,
    BatchResult,
    Change,
    Head,
    Key,
    Moment,
    Operation,
    Record,
    Rejected,
    Transaction,
    Who,
)

# -- reads -------------------------------------------------------------------------------------------------------------
#
# Recorded reads in memory, for tests; satisfies ReadLog.


class MemoryReads:
    def __init__(self) -> None:
        self._reads: list[ReadRecord] = []
        self._recordings: dict[UUID, Recording] = {}

    async def record(self, reads: Sequence[ReadRecord], recording: Recording) -> None:
        await trio.lowlevel.checkpoint()
        for read in reads:
            # Postgres keeps microseconds: finer times would not be those of the continue tokens.
            self._reads.append(read._replace(id=len(self._reads) + 1, at=round(read.at * 1_000_000) / 1_000_000))
        self._recordings[recording.id] = recording

    async def retain(self, days: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async def list(self, query: ReadQuery, *, limit: int) -> Sequence[ReadRecord]:
        await trio.lowlevel.checkpoint()
        found = [read for read in self._reads if query.matches(read) and _is_before(read, query)]
        return sorted(found, key=lambda read: (read.at, read.id), reverse=True)[:limit]

    async def recordings(self, *, limit: int) -> Sequence[Recording]:
        await trio.lowlevel.checkpoint()
        return sorted(self._recordings.values(), key=lambda each: each.since, reverse=True)[:limit]


def _is_before(read: ReadRecord, query: ReadQuery) -> bool:
    if query.before is None:
        return True
    return (datetime.fromtimestamp(read.at, UTC), read.id) < query.before


# -- store -------------------------------------------------------------------------------------------------------------


class Replica(Protocol):
    """The part of MemoryLog that its store uses."""

    notified: trio.Event


class MemoryStore:
    """The committed state, shared by all MemoryLogs on it."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.revision = 0
        self.compacted = 0
        self.compacted_of: dict[str, int] = {}
        self.who: dict[int, Who] = {}  # by revision; the rows are stored without
        self._now = now
        self._committed_at = datetime.min.replace(tzinfo=UTC)
        self._hashes = {0: uuid4().bytes}  # of the chain, by revision; the contents are no part of it
        self._rows: list[Record] = []  # in revision order, without compacted ones
        self._history: dict[Key, list[Record]] = {}  # the same rows by key
        self._dropped_of: dict[str, int] = {}  # by resource: the newest revision without a row
        self._results: dict[UUID, BatchResult] = {}
        self._fenced: set[UUID] = set()
        self._stragglers: dict[UUID, Batch] = {}
        self._listeners: list[Replica] = []
        self.reads = MemoryReads()
        self.branches = MemoryBranches()
        self.sole: object = None  # the MemoryLog that holds the claim to append alone

    # Writing

    def commit(self, batch: Batch, *, notify: Sequence[Replica] | None = None) -> BatchResult:
        """Check and commit as one transaction. A batch id commits once; a repetition returns the same result."""
        if batch.id in self._fenced:
            raise LogUnavailable(f"batch {batch.id} was given up")
        if batch.id in self._results:
            return self._results[batch.id]
        first = self.revision + 1
        self._committed_at = max(self._committed_at, self._now())
        outcomes = tuple(self._commit_transaction(transaction) for transaction in batch.transactions)
        result = BatchResult(outcomes=outcomes, first=first, head=self.revision)
        self._results[batch.id] = result
        if self.revision >= first:
            self.notify(self._listeners if notify is None else notify)
        return result

    def _commit_transaction(self, transaction: Transaction) -> tuple[Record, ...] | Rejected:
        for change in transaction.changes:
            current = self.current(change.key)
            actual = current.revision if current else 0
            if actual != change.expected:
                return Rejected(key=change.key, expected=change.expected, actual=actual)
        return tuple(self._commit_change(change, transaction.who_of(change)) for change in transaction.changes)

    def _commit_change(self, change: Change, who: Who) -> Record:
        current = self.current(change.key)
        self.revision += 1
        row = Record(
            revision=self.revision,
            key=change.key,
            uid=change.uid,
            create_revision=current.create_revision if current else self.revision,
            version=current.version + 1 if current else 1,
            previous_revision=current.revision if current else 0,
            operation=change.operation,
            body=change.body,
            committed_at=self._committed_at,
        )
        self._rows.append(row)
        self._hashes[row.revision] = sha256(self._hashes[row.revision - 1] + repr(identity_of(row)).encode()).digest()
        self._history.setdefault(change.key, []).append(row)
        self.who[self.revision] = who
        return structs.replace(row, who=who, decoded=change.decoded, mark=change.mark)

    def settle(self, batch: Batch) -> BatchResult | None:
        result = self._results.get(batch.id)
        if result is None:
            self._fenced.add(batch.id)
        return result

    def strand(self, batch: Batch) -> None:
        """Keep a batch whose connection broke; it may still arrive."""
        self._stragglers[batch.id] = batch

    def deliver_straggler(self, batch_id: UUID) -> bool:
        """Let a stranded batch arrive now. False: it was fenced meanwhile, and so did not commit."""
        batch = self._stragglers.pop(batch_id)
        if batch.id in self._fenced:
            return False
        self.commit(batch)
        return True

    @property
    def stragglers(self) -> tuple[UUID, ...]:
        return tuple(self._stragglers)

    def compact(self, revision: int, *, resource: str = "") -> None:
        """Drop history at or below the revision, of one resource or of all, except the state as of the revision."""
        if resource:
            self.compacted_of[resource] = max(revision, self.compacted_of.get(resource, 0))
        else:
            self.compacted = max(revision, self.compacted)
        dropped: set[int] = set()
        for key, rows in list(self._history.items()):
            if resource in ("", key.resource):
                kept = _survivors(rows, revision)
                dropped.update({row.revision for row in rows} - {row.revision for row in kept})
                self._history[key] = kept
        for row in self._rows:
            if row.revision in dropped:
                newest = self._dropped_of.get(row.key.resource, 0)
                self._dropped_of[row.key.resource] = max(newest, row.revision)
        self._rows = [row for row in self._rows if row.revision not in dropped]
        self.notify(self._listeners)

    def keep_newest(self, rows: int) -> None:
        """Compact the older half of the rows if there are more than so many."""
        if len(self._rows) > rows:
            self.compact(self._rows[len(self._rows) - rows // 2].revision)

    # Reading

    def head(self) -> Head:
        own = {resource: mark for resource, mark in self.compacted_of.items() if mark > self.compacted}
        return Head(revision=self.revision, compacted=self.compacted, compacted_of=own)

    def identity(self, revision: int) -> RowIdentity | None:
        index = bisect_left(self._rows, revision, key=lambda row: row.revision)
        if index == len(self._rows) or self._rows[index].revision != revision:
            return None
        return identity_of(self._rows[index])._replace(hash=self._hashes[revision])

    def current(self, key: Key) -> Record | None:
        rows = self._history.get(key)
        return rows[-1] if rows and rows[-1].operation is not Operation.DELETE else None

    def at(self, key: Key, revision: int) -> Record | None:
        rows = [row for row in self._history.get(key, ()) if row.revision <= revision]
        return rows[-1] if rows and rows[-1].operation is not Operation.DELETE else None

    def live(self) -> list[Record]:
        rows = (self.current(key) for key in self._history)
        return [row for row in rows if row is not None]

    def keys(self, resource: str) -> list[Key]:
        return sorted(key for key in self._history if key.resource == resource)

    def rows(self, *, after: int) -> Iterator[Record]:
        return iter(self._rows[self._index(after) :])

    def _index(self, revision: int) -> int:
        """Return the index of the first row above a revision."""
        return bisect_right(self._rows, revision, key=lambda row: row.revision)

    def changes(self, query: ChangeQuery) -> Iterator[tuple[Record, Record | None]]:
        """Return the matching changes, each with the record it replaced. Read only the rows of these revisions."""
        first, end = self._index(query.after), self._index(query.until)
        ordered = self._rows[first:end]
        if query.newest_first:
            ordered.reverse()
        without_texts = replace(query, texts=(), causes=())  # only they need the user of a row
        candidates = filter(without_texts.matches, ordered)
        rows = filter(query.matches, (structs.replace(row, who=self.who[row.revision]) for row in candidates))
        if not query.with_replaced:
            return ((row, None) for row in rows)
        return ((row, self.at(row.key, row.previous_revision) if row.previous_revision else None) for row in rows)

    def check_complete(self, after: int) -> None:
        """Compacted: a row above ``after`` is gone, of any resource."""
        oldest_whole = max([self.compacted, *self._dropped_of.values()])
        if after < oldest_whole:
            raise Compacted(after, oldest_whole)

    def check_retained(self, resource: str, revision: int) -> None:
        compacted = self.head().compacted_for(resource)
        if revision < compacted:
            raise Compacted(revision, compacted)

    def state_at(self, resource: str, revision: int, namespace: str, after: tuple[str, str] | None) -> list[Record]:
        """Return the resource's objects as of the revision, of a namespace (or all: ""), that follow a key."""
        self.check_state_at(resource, revision)
        keys = [key for key in self.keys(resource) if namespace in ("", key.namespace)]
        rows = [self.at(key, revision) for key in keys if after is None or key[1:] > after]
        return [row for row in rows if row is not None]

    def check_state_at(self, resource: str, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self.check_retained(resource, revision)

    def revision_at(self, when: datetime | timedelta) -> Moment:
        now = self._now()
        moment = when if isinstance(when, datetime) else now - when
        if moment > now:
            raise FutureMoment(moment, now)
        before = bisect_right(self._rows, moment, key=lambda row: row.committed_at)
        revision = self._rows[before - 1].revision if before else 0
        if revision < max(self.compacted, 1):
            raise BeforeHistory(self.oldest())
        return Moment(revision, moment)

    def moment_of(self, revision: int) -> Moment:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < max(self.compacted, 1):
            raise BeforeHistory(self.oldest())
        rows = self._rows[bisect_left(self._rows, revision, key=lambda row: row.revision) :]
        return Moment(revision, rows[0].committed_at if rows else self._committed_at)

    def oldest(self) -> Moment | None:
        return self.moment_of(max(self.compacted, 1)) if self.revision else None

    # Notifications

    def listen(self, log: Replica) -> None:
        self._listeners.append(log)

    def notify(self, logs: Sequence[Replica]) -> None:
        for log in logs:
            log.notified.set()

    def others(self, log: Replica) -> list[Replica]:
        return [other for other in self._listeners if other is not log]


def _survivors(rows: list[Record], revision: int) -> list[Record]:
    """Return the rows above the revision, and the row with the state as of the revision."""
    newer = [row for row in rows if row.revision > revision]
    older = [row for row in rows if row.revision <= revision]
    if older and older[-1].operation is not Operation.DELETE:
        return [older[-1], *newer]
    return newer
