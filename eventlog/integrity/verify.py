"""Verification that history was not edited: recomputes the hash chain from the rows, in Python, not in the database
that is under test.

    digest(r) = sha256(encoding of every column of row r)      hash(r) = sha256(hash(r-1) || digest(r))
    hash(0)   = sha256(log_id)

The encoding is that of digests.py. Rows of dropped partitions are represented by their digests (tombstones). An
``anchor``, a revision and its hash noted earlier elsewhere, detects an attacker who rewrites all rows from one point
on, with digests, hashes and head. For an erased row, the chain has the stored digest, and the rest of the row must have
the digest in its tombstone (erasures.py).

``ChainCheck`` is sans-IO; ``verify`` feeds it from one snapshot of the database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.digests import DIGESTED, EPOCH, digest_of
from kubechronicle.eventlog.integrity.erasures import Erasure, ErasureCheck, Remains, Tombstone
from kubechronicle.eventlog.postgres.session import Row, Session

CHUNK = 1000  # rows at a time

_COLUMNS = ", ".join(name for name, _ in DIGESTED) + ", digest, hash"
_HEAD = "select log_id, revision, hash from kubechronicle.head"
_LOG = f"select {_COLUMNS} from kubechronicle.log order by revision"
_KEPT = f"select {_COLUMNS} from kubechronicle.kept order by revision"
_TOMBSTONES = "select thousand, revisions, digests from kubechronicle.tombstones order by thousand"
_ERASED = "select revision, erasure::text, was, remains from kubechronicle.erased order by revision, erasure"
# Live rows that differ from the log's row of the same revision.
_WRONG_LIVE = """
select l.revision from kubechronicle.live l left join lateral (
    select resource, namespace, name, create_revision, version, operation from kubechronicle.log
    where revision = l.revision
    union all
    select resource, namespace, name, create_revision, version, operation from kubechronicle.kept
    where revision = l.revision limit 1) r on true
where (r.resource, r.namespace, r.name, r.create_revision, r.version)
    is distinct from (l.resource, l.namespace, l.name, l.create_revision, l.version) or r.operation = 3
order by 1 limit 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The first revision at which the log contradicts itself, and a message."""

    revision: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A row read from an archive.

    ``columns``: as in the log, by name.
    ``content``: the digest computed from ``columns``.
    ``digest``, ``hash``: as stored in the row.
    ``erased``: True for a row after an erasure, whose ``digest`` is that of the original row; else ``digest`` equals
    ``content``.
    """

    revision: int
    columns: dict[str, Any]
    digest: bytes
    hash: bytes
    content: bytes
    erased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``problem`` None: revisions 1 to ``revision`` are as appended; their ``hash`` is worth noting elsewhere."""

    problem: Problem | None
    revision: int
    hash: bytes
    rows: int  # verified by their content
    tombstones: int  # verified by their digest, since their content is gone
    archived: int = 0  # of the tombstones, verified by the content in archives
    erasures: tuple[tuple[Erasure, str], ...] = ()  # each with its revisions as text
    unerased: int = 0  # archived rows that still hold erased data


@dataclass(slots=True)
class ChainCheck:
    """Checks the chain: call ``row`` or ``tombstone`` for every revision in order, then ``finish``.

    Each call returns the problem it found, or None. Stop at the first problem.

    ``kept``: the digests (computed from content) of rows copied forward, by revision.
    ``remains``: the rest of erased rows copied forward, by revision.
    ``digest``: of the newest revision. ``digests``: the same, and its digests after each erasure.
    ``current``: the revisions of existing objects.
    ``erased``: the tombstones of the newest revision.
    """

    hash: bytes
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    kept: Mapping[int, bytes] = field(default_factory=dict)
    remains: Mapping[int, Remains] = field(default_factory=dict)
    revision: int = 0
    rows: int = 0
    tombstones: int = 0
    digest: bytes = b""
    digests: list[bytes] = field(default_factory=list)
    current: set[int] = field(default_factory=set)
    erased: Sequence[Tombstone] = ()
    erasures: ErasureCheck = field(default_factory=ErasureCheck)
    _committed_at: datetime = EPOCH - timedelta(days=365 * 100)

    def row(self, row: Row, erased: Sequence[Tombstone] = ()) -> Problem | None:
        revision: int = row["revision"]
        content = digest_of(row)
        digest = bytes(row["digest"]) if erased else content
        if problem := self._follows(revision):
            return problem
        if digest != row["digest"]:
            why = "its content does not have its digest"
            if erasures.is_tombstone(row["object"]):
                why = "its contents are gone, and no erasure records it"
            return Problem(revision=revision, message=f"the row was edited: {why}")
        if row["committed_at"] < self._committed_at:
            return Problem(revision=revision, message="it was committed before the revision before it")
        self._committed_at = row["committed_at"]
        if problem := self._link(revision, digest, row["hash"], erased):
            return problem
        if content != self.digests[-1]:
            return Problem(revision=revision, message="the row was edited: it is not the row that its erasure left")
        if erased:
            self.erasures.add_remains(revision, erasures.remains_of(_columns(row)), erased)
        if row["resource"] == erasures.RESOURCE and (problem := self.add_entry(row)):
            return problem
        self.rows += 1
        self.current.discard(row["previous_revision"])
        if row["operation"] != 3:
            self.current.add(revision)
        return None

    def tombstone(self, revision: int, digest: bytes, erased: Sequence[Tombstone] = ()) -> Problem | None:
        if problem := self._follows(revision) or self._link(revision, digest, None, erased):
            return problem
        self.tombstones += 1
        if revision in self.kept:
            self.current.add(revision)
            self.erasures.add_remains(revision, self.remains.get(revision), erased)
        return None

    def add_entry(self, row: Row) -> Problem | None:
        """Check a row that records an erasure."""
        if row["operation"] == 1:
            try:
                erasure = erasures.parse(row["object"], revision=row["revision"], erased_at=row["committed_at"])
            except ValueError as error:
                return Problem(revision=row["revision"], message=str(error))
            if erasure.id == row["name"]:
                wrong = self.erasures.add_entry(erasure)
            else:
                wrong = "it records another erasure than its name"
            if wrong:
                return Problem(revision=row["revision"], message=wrong)
        return None

    def finish(self, head: int, head_hash: bytes, live: set[int]) -> Problem | None:
        if head != self.revision:
            message = f"the newest row is {self.revision}, but the head says {head}"
            return Problem(revision=min(head, self.revision) + 1, message=message)
        if beyond := [revision for revision in self.anchors if revision > head]:
            message = f"history ends before revision {max(beyond)}, whose hash was noted"
            return Problem(revision=head + 1, message=message)
        if unknown := [revision for revision in self.kept if not 0 < revision <= head]:
            return Problem(revision=min(unknown), message="a row was copied forward that was never appended")
        if head_hash != self.hash:
            return Problem(revision=head, message="the head does not have the hash of the newest row")
        if different := live ^ self.current:
            message = "the table of live objects does not match the log"
            return Problem(revision=min(different), message=message)
        if problem := self.erasures.finish():
            return Problem(revision=problem[0], message=problem[1])
        return None

    def _follows(self, revision: int) -> Problem | None:
        if revision == self.revision + 1:
            return None
        if revision <= self.revision:
            return Problem(revision=revision, message="the revision occurs twice")
        return Problem(revision=self.revision + 1, message="the row is missing")

    def _link(self, revision: int, digest: bytes, stored: bytes | None, erased: Sequence[Tombstone]) -> Problem | None:
        self.hash = sha256(self.hash + digest).digest()
        self.digest, self.erased = digest, erased
        self.revision = revision
        self.digests, wrong = self.erasures.add_row(digest, erased)
        if stored is not None and stored != self.hash:
            return Problem(revision=revision, message="the chain is broken: the row does not follow the one before it")
        if wrong:
            return Problem(revision=revision, message=wrong)
        if revision in self.kept and self.kept[revision] != self.digests[-1]:
            return Problem(revision=revision, message="the row copied forward is not the one that was appended")
        if self.anchors.get(revision, self.hash) != self.hash:
            return Problem(revision=revision, message="history up to here does not match the noted hash")
        return None


async def verify(
    session: Session,
    *,
    anchors: Mapping[int, bytes] | None = None,
    log_ids: Collection[UUID] = (),
    archived: Iterable[ArchivedRow] = (),
) -> Verdict:
    """Recompute the chain from the beginning to the head. Reads all history once, in memory bounded by the number of
    live objects.

    ``anchors``: noted hashes by revision.
    ``log_ids``: the log ids noted with the anchors.
    ``archived``: the rows of the log's archives, in order; each must be the appended one.
    """
    async with session.snapshot():
        # The lock keeps partitions from being dropped under a snapshot that does not see the copied rows yet.
        await session.execute(
            "lock table kubechronicle.log in access share mode; set local statement_timeout = 0;"
            "set local enable_sort = off; set local enable_seqscan = off"
        )
        log_id, head, head_hash = (await session.fetch(_HEAD))[0]
        kept: dict[int, bytes] = {}
        remains: dict[int, Remains] = {}
        check = ChainCheck(hash=sha256(log_id.bytes).digest(), anchors=anchors or {}, kept=kept, remains=remains)
        problem = _another_log(log_id, log_ids)
        async with aclosing(session.rows(_KEPT, chunk=CHUNK, size=_size)) as chunks:
            async for chunk in chunks:
                kept.update((row["revision"], digest_of(row)) for row in chunk)
                remains.update(
                    (row["revision"], rest) for row in chunk if (rest := erasures.remains_of(_columns(row))) is not None
                )
                entries = (row for row in chunk if row["resource"] == erasures.RESOURCE)
                problem = next(filter(None, map(check.add_entry, entries)), problem)
        archive_check = _ArchiveCheck(iter(archived))
        problem = problem or await _feed(session, check, archive_check) or archive_check.finish(head)
        if problem is None:
            live = {row[0] for row in await session.fetch("select revision from kubechronicle.live")}
            problem = check.finish(head, bytes(head_hash), live)
        if problem is None and (wrong := await session.fetch(_WRONG_LIVE)):
            problem = Problem(revision=wrong[0][0], message="the table of live objects contradicts the log")
    return Verdict(
        problem=problem,
        revision=check.revision,
        hash=check.hash,
        rows=check.rows,
        tombstones=check.tombstones,
        archived=archive_check.rows_only_archived,
        unerased=archive_check.unerased,
        erasures=()
        if problem
        else tuple((entry, check.erasures.ranges(entry.id)) for entry in check.erasures.entries.values()),
    )


def _columns(row: Row) -> dict[str, Any]:
    return {name: row[name] for name, _ in DIGESTED}


def _another_log(log_id: UUID, noted: Collection[UUID]) -> Problem | None:
    other = next((one for one in noted if one != log_id), None)
    if other is None:
        return None
    return Problem(
        revision=0, message=f"this is log {log_id}, not log {other}: it was recreated, or belongs to another server"
    )


@dataclass(slots=True)
class _ArchiveCheck:
    """Compares archived rows with the chain.

    ``rows_only_archived``: rows that the log has no more.
    ``unerased``: rows that still hold erased data.
    """

    rows: Iterator[ArchivedRow]
    rows_only_archived: int = 0
    unerased: int = 0
    _next: ArchivedRow | None = None
    _begun: bool = False

    def compare(self, check: ChainCheck, *, stored: bool) -> Problem | None:
        """Compare the archived row of the newest revision in the chain, if any. ``stored``: the log has the row too."""
        if not self._begun:
            self._begun, self._next = True, next(self.rows, None)
        row = self._next
        if row is None or row.revision > check.revision:
            return None
        if row.revision < check.revision:
            return Problem(revision=row.revision, message="the archives have this revision twice")
        if row.hash != check.hash or row.digest != check.digest or row.content not in check.digests:
            return Problem(revision=row.revision, message="the archived row is not the one that was appended")
        self.unerased += row.content != check.digests[-1]
        if check.erased and row.content == check.digests[-1]:
            check.erasures.add_remains(row.revision, erasures.remains_of(row.columns), check.erased)
        self.rows_only_archived += not stored
        self._next = next(self.rows, None)
        return None

    def finish(self, head: int) -> Problem | None:
        rest = self._next if self._begun else next(self.rows, None)
        if rest is None:
            return None
        return Problem(revision=rest.revision, message=f"it is archived, but the newest revision is {head}")


async def _feed(session: Session, check: ChainCheck, archive_check: _ArchiveCheck) -> Problem | None:
    """Feed rows and tombstones to the check in revision order. While a partition is being dropped, a revision may have
    both; then the row is checked, and its tombstone has to match."""
    erased = _TombstoneReader(session.rows(_ERASED, chunk=CHUNK))

    async def check_tombstone(link: tuple[int, bytes]) -> Problem | None:
        return check.tombstone(*link, await erased.of(link[0])) or archive_check.compare(check, stored=False)

    async with (
        aclosing(erased.chunks),
        aclosing(_tombstones(session)) as tombstones,
        aclosing(session.rows(_LOG, chunk=CHUNK, size=_size)) as chunks,
    ):
        tombstone = await anext(tombstones, None)
        async for chunk in chunks:
            for row in chunk:
                while tombstone is not None and tombstone[0] <= row["revision"]:
                    if tombstone[0] < row["revision"]:
                        if problem := await check_tombstone(tombstone):
                            return problem
                    elif tombstone[1] != row["digest"]:
                        return Problem(revision=tombstone[0], message="the tombstone is not that of the appended row")
                    tombstone = await anext(tombstones, None)
                if problem := check.row(row, await erased.of(row["revision"])) or archive_check.compare(
                    check, stored=True
                ):
                    return problem
        while tombstone is not None:
            if problem := await check_tombstone(tombstone):
                return problem
            tombstone = await anext(tombstones, None)
        return await erased.finish()


def _size(row: Row) -> int:
    return len(row["object"])


class _TombstoneReader:
    """Reads the tombstones of erasures in step with the chain."""

    def __init__(self, chunks: AsyncGenerator[Sequence[Row], None]) -> None:
        self.chunks = chunks
        self._read: deque[Tombstone] = deque()
        self._over = False

    async def of(self, revision: int) -> Sequence[Tombstone]:
        tombstones: list[Tombstone] = []
        while (following := await self._next()) is not None and following.revision <= revision:
            tombstones.append(self._read.popleft())
        return tombstones

    async def finish(self) -> Problem | None:
        rest = await self._next()
        return Problem(revision=rest.revision, message="it was erased, but there is no such revision") if rest else None

    async def _next(self) -> Tombstone | None:
        if not self._read and not self._over:
            chunk = await anext(self.chunks, None)
            self._over = chunk is None
            self._read.extend(Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in chunk or ())
        return self._read[0] if self._read else None


async def _tombstones(session: Session) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield (revision, digest) in order, merging the classes' entries of each thousand revisions."""
    gathered: list[tuple[int, bytes]] = []
    thousand = -1
    async with aclosing(session.rows(_TOMBSTONES, chunk=20)) as chunks:
        async for chunk in chunks:
            for row in chunk:
                if row["thousand"] != thousand:
                    for link in sorted(gathered):
                        yield link
                    gathered, thousand = [], row["thousand"]
                gathered += zip(row["revisions"], row["digests"], strict=True)
    for link in sorted(gathered):
        yield link
