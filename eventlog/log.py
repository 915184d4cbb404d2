"""RevisionLog: the contract of a revision log. PostgresLog and MemoryLog satisfy it; one test suite runs against both.

Appender, tail, views, actors and HTTP use only these calls.

A Chunk ends at the limit of its rows, or after CHUNK_BYTES of objects. The reader continues after its last row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from kubechronicle.eventlog.availability import Availability
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.queries.branches import BranchTable
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Key, Moment, Record


class Claim(NamedTuple):
    """The right to append alone.

    ``head``: the head at the time of the claim.
    ``connected``: returns, without waiting, whether the connection that made the claim is still open.
    """

    head: Head
    connected: Callable[[], bool]


class ReadLog(Protocol):
    """The recorded reads (queries/reads.py), which are no part of the hash chain."""

    async def record(self, reads: Sequence[ReadRecord], recording: Recording) -> None:
        """Store reads, which may be none, and that their recording goes on. LogUnavailable."""
        ...

    async def retain(self, days: int) -> list[str]:
        """Drop reads that are older than ``days`` (0: none), by weeks, and return what was dropped. LogUnavailable."""
        ...

    async def list(self, query: ReadQuery, *, limit: int) -> Sequence[ReadRecord]:
        """Return at most ``limit`` reads, newest first."""
        ...

    async def recordings(self, *, limit: int) -> Sequence[Recording]:
        """Return the periods in which reads were recorded, newest first."""
        ...


class RevisionLog(Protocol):
    @property
    def recorded(self) -> ReadLog: ...

    @property
    def branches(self) -> BranchTable: ...

    @property
    def availability(self) -> Availability: ...

    async def head(self) -> Head:
        """Return the committed head, in one round trip. LogUnavailable."""
        ...

    async def append(self, batch: Batch) -> BatchResult:
        """Check the expected revisions and commit, in one round trip. LogUnavailable: nothing was committed.
        OutcomeUnknown: the connection broke after sending; call settle()."""
        ...

    async def settle(self, batch: Batch) -> BatchResult | None:
        """Return the result of a batch whose outcome is unknown; None: it has not committed and never will.

        None fences the batch id, so a straggling transaction of the lost connection cannot commit any more.
        """
        ...

    def follow(self, position: Callable[[], Position | None]) -> None:
        """Compare the position, which may change at any time, on each new connection before its first use.

        The call that needs the connection raises Diverged, which is a LogUnavailable.
        """
        ...

    def restart(self, newest: int) -> None:
        """The log went back to this revision: ``newest_seen_revision`` begins anew."""
        ...

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        """Return the rows of these revisions that are in the log, without contents. LogUnavailable."""
        ...

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        """Return at most ``limit`` records with revision > ``after``, in revision order, without ``who``.

        ``position``: at ``after``; compared with the log's row. Diverged.
        Compacted: ``after`` is below the compacted revision of some resource, so rows may be missing.
        """
        ...

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[tuple[Record, Record | None]]:
        """Return at most ``limit`` records of one resource with ``after`` < revision <= ``until``, in revision order.

        Each comes with the record it replaced (None: the key was absent). Compacted: ``after`` is below the resource's
        compacted revision.
        """
        ...

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        """Return at most ``limit`` matching changes that are still in the log, with ``who``, in the query's order.

        Each comes with the record it replaced (None: the key was absent, that record is gone, or it is not wanted).
        """
        ...

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        """Return the states of at most ``limit`` changes that match one of the queries and are still in the log.

        The queries differ in the objects that they select; no change matches two of them. The states come in the order
        of the first query, with the states before if it wants the replaced ones.
        ``texts``: a body that has none of them may be left out. Bodies that are encrypted or erased never are. With
        texts, the answer is taken to be small.
        """
        ...

    async def density(self, query: DensityQuery) -> list[Count]:
        """Count the matching changes that are still in the log by bucket and value.

        Ordered by both, with the sum of the other values last; zeros are left out. TooMany: more changes than one query
        may count.
        """
        ...

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        """Return the groups of the matching changes that are still in the log, those with the most changes first.

        Groups of equal size are ordered by their values. TooMany: more changes than one query may count.
        """
        ...

    def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        """Return all live objects in one consistent snapshot, in chunks. Every chunk comes with the same Head; there is
        at least one chunk, maybe empty."""
        ...

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        """Return the key's record as of the revision; None: absent. Compacted, FutureRevision."""
        ...

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        """Return at most ``limit`` objects of a resource as of the revision, that follow the key ``after``.

        Ordered by (namespace, name) bytewise. Compacted, FutureRevision.
        """
        ...

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        """Count the objects that ``list_at`` would return without a limit. Compacted, FutureRevision."""
        ...

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        """Return the newest revision committed at the time or before, or that long ago.

        The answer for a past time never changes. BeforeHistory: the revision cannot be read any more. FutureMoment.
        """
        ...

    async def moment_of(self, revision: int) -> Moment:
        """Return the commit time of the revision; if its row is gone, of the next row. BeforeHistory,
        FutureRevision."""
        ...

    # Appending alone: consistency.py

    @property
    def newest_seen_revision(self) -> int:
        """The newest revision in any answer so far, except those of ``append`` and ``settle``."""
        ...

    async def claim(self) -> Claim | None:
        """Claim to append alone: from the answer on, append() rejects all others with NotSoleAppender.

        None: another server holds the claim, or shared appends are under way; then our own claim is released.
        LogUnavailable.
        """
        ...

    async def wait_claim_in_doubt(self) -> None:
        """Return when the claim may have been lost, or when another client requests shared appends."""
        ...

    async def wait_notified(self) -> None:
        """Return when another replica may have appended: at a NOTIFY, or after the poll interval.

        Never raises for a lost connection; the caller's next read will.
        """
        ...
