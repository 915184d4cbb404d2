"""The contract of a revision log. PostgresLog and MemoryLog satisfy it; one test suite runs against both.

Everything above this line (appender, tail, views, actors, HTTP) uses only these calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Key, Moment, Record


class Claim(NamedTuple):
    """To be the only one that appends. ``head``: as of when it was made; ``connected``: a look, without waiting,
    whether the connection is still open that it was made on."""

    head: Head
    connected: Callable[[], bool]


class RevisionLog(Protocol):
    async def head(self) -> Head:
        """The head as committed now. One round trip. LogUnavailable."""
        ...

    async def append(self, batch: Batch) -> BatchResult:
        """Check expectations and commit, one round trip. LogUnavailable: certainly nothing happened.
        OutcomeUnknown: the connection broke after sending; ask settle()."""
        ...

    async def settle(self, batch: Batch) -> BatchResult | None:
        """What became of a batch whose outcome is unknown: its result, or None for certainly never committed, now or
        later (the batch id is fenced, so a straggling transaction of the lost connection cannot commit any more)."""
        ...

    async def read(self, *, after: int, limit: int) -> list[Record]:
        """Records with revision > after in revision order, at most limit. Compacted if after < compacted of any
        resource class whose rows are gone in that range. Without ``who``."""
        ...

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> list[tuple[Record, Record | None]]:
        """Records of one resource with after < revision <= until, each with the record it replaced (None: none),
        in revision order, at most limit. Compacted if after < the resource's compacted revision."""
        ...

    async def changes(self, query: ChangeQuery, *, limit: int) -> list[tuple[Record, Record | None]]:
        """Changes that are still in the log and match, with ``who``, in the query's order, at most limit; each with the
        record it replaced (None: none, or it is gone)."""
        ...

    async def density(self, query: DensityQuery) -> list[Count]:
        """How many of the changes that are still in the log and match there were in each bucket, by value; in order of
        both, the values not told by name last; without those that are nought. TooMany: more than may be counted."""
        ...

    def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        """All live objects in one consistent snapshot, in chunks; every chunk comes with the same Head, and there is at
        least one (maybe empty) chunk."""
        ...

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        """The key as it was at the revision; None: absent then. Compacted, FutureRevision."""
        ...

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> list[Record]:
        """The objects of a resource as they were at the revision, ordered by (namespace, name) bytewise, beginning
        after the key ``after``, at most limit. Compacted, FutureRevision."""
        ...

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        """How many objects ``list_at`` would find without a limit. Compacted, FutureRevision."""
        ...

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        """The newest revision committed at a time or before, or that long ago; the same whenever it is asked about a
        time. Only times of revisions that can be read. BeforeHistory, FutureMoment."""
        ...

    async def moment_of(self, revision: int) -> Moment:
        """When the revision was committed; if its row is gone, the next there is. BeforeHistory, FutureRevision."""
        ...

    # Appending alone: sole.py

    @property
    def newest_seen_revision(self) -> int:
        """The newest revision that any answer has told of so far, other than those of ``append`` and ``settle``."""
        ...

    async def claim(self) -> Claim | None:
        """From when it is answered, append() refuses everybody else, with NotSoleAppender. None: somebody else has
        claimed that, or is appending beside; then a claim of ours is given up. LogUnavailable."""
        ...

    async def wait_claim_shaken(self) -> None:
        """Return after the claim may have been lost, or somebody has asked for room to append beside."""
        ...

    async def wait_notified(self) -> None:
        """Return after another replica may have appended something: once per NOTIFY, or after the poll interval.
        Never raises for a lost connection; the caller reads and sees for itself."""
        ...
