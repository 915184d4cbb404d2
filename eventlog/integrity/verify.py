"""Proving that history was not edited: the hash chain recomputed from the rows themselves, in Python and not by the
database whose word is in question.

    digest(r) = sha256(encoding of every column of row r)      hash(r) = sha256(hash(r-1) || digest(r))
    hash(0)   = sha256(log_id)

The encoding is that of digests.py. Rows whose partition was dropped are represented by their digests (tombstones).
Whoever rewrites all rows from one point on, with digests, hashes and the head, is found out by an ``anchor``: a
revision and its hash, noted earlier and elsewhere. Of a row that was erased the stored digest stands in the chain, and
what remains of it has the digest its erasure tells (erasures.py).

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
from kubechronicle.eventlog.integrity.digests import DIGESTED as DIGESTED
from kubechronicle.eventlog.integrity.digests import EPOCH, digest_of
from kubechronicle.eventlog.integrity.digests import encode_row as encode_row
from kubechronicle.eventlog.integrity.erasures import Erasure, ErasureCheck, Left, Tombstone
from kubechronicle.eventlog.postgres.session import Row, Session

CHUNK = 1000  # rows at a time

_COLUMNS = ", ".join(name for name, _ in DIGESTED) + ", digest, hash"
_HEAD = "select log_id, revision, hash from kubechronicle.head"
_LOG = f"select {_COLUMNS} from kubechronicle.log order by revision"
_KEPT = f"select {_COLUMNS} from kubechronicle.kept order by revision"
_TOMBSTONES = "select thousand, revisions, digests from kubechronicle.tombstones order by thousand"
_ERASED = "select revision, erasure::text, was, remains from kubechronicle.erased order by revision, erasure"
# Live rows that are not what the log says of the same revision.
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
    """The first revision at which the log contradicts itself, and how."""

    revision: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A row read from an archive. ``columns``: as in the log, by name. ``content`` is the digest computed from them;
    ``digest`` and ``hash`` are as the row says. ``erased``: it is what an erasure has left, so its digest is of what
    was there before; otherwise that is its content's."""

    revision: int
    columns: dict[str, Any]
    digest: bytes
    hash: bytes
    content: bytes
    erased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``problem`` None: revisions 1 to ``revision`` are what was appended; ``hash`` is worth noting elsewhere."""

    problem: Problem | None
    revision: int
    hash: bytes
    rows: int  # checked by their content
    tombstones: int  # checked by their digest, their content being gone
    archived: int = 0  # of these, checked by their content in archives
    erasures: tuple[tuple[Erasure, str], ...] = ()  # each with the revisions it erased
    unerased: int = 0  # archived rows that still hold what was erased


@dataclass(slots=True)
class ChainCheck:
    """Follows the chain: feed it every revision in order, by ``row`` or ``tombstone``, then ``finish``.

    Each call answers the problem found, if any; after the first one there is nothing more to learn.
    ``kept``: the digests (computed from content) of rows that were copied forward, by revision. ``erased``: of the
    revision, what erasures say they took out of it.
    """

    hash: bytes
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    kept: Mapping[int, bytes] = field(default_factory=dict)
    left: Mapping[int, Left] = field(default_factory=dict)  # of those copied forward of which something was erased
    revision: int = 0
    rows: int = 0
    tombstones: int = 0
    digest: bytes = b""  # of the newest revision
    states: list[bytes] = field(default_factory=list)  # that digest, and those of what erasures have left since
    current: set[int] = field(default_factory=set)  # the revisions of the objects that exist
    erased: Sequence[Tombstone] = ()  # of the newest revision
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
                why = "its contents are gone, and no erasure tells of it"
            return Problem(revision=revision, what=f"the row was edited: {why}")
        if row["committed_at"] < self._committed_at:
            return Problem(revision=revision, what="it was committed before the revision before it")
        self._committed_at = row["committed_at"]
        if problem := self._link(revision, digest, row["hash"], erased):
            return problem
        if content != self.states[-1]:
            return Problem(revision=revision, what="the row was edited: it is not what its erasure has left of it")
        if erased:
            self.erasures.left(revision, erasures.left_in(_columns(row)), erased)
        if row["resource"] == erasures.RESOURCE and (problem := self.entry(row)):
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
            self.erasures.left(revision, self.left.get(revision), erased)
        return None

    def entry(self, row: Row) -> Problem | None:
        """A row that tells of an erasure."""
        if row["operation"] == 1:
            try:
                told = erasures.parse(row["object"], revision=row["revision"], erased_at=row["committed_at"])
            except ValueError as error:
                return Problem(revision=row["revision"], what=str(error))
            wrong = self.erasures.entry(told) if told.id == row["name"] else "it tells of another erasure than its name"
            if wrong:
                return Problem(revision=row["revision"], what=wrong)
        return None

    def finish(self, head: int, head_hash: bytes, live: set[int]) -> Problem | None:
        if head != self.revision:
            what = f"the newest row is {self.revision}, but the head says {head}"
            return Problem(revision=min(head, self.revision) + 1, what=what)
        if beyond := [revision for revision in self.anchors if revision > head]:
            what = f"history ends before revision {max(beyond)}, of which the hash was noted"
            return Problem(revision=head + 1, what=what)
        if strays := [revision for revision in self.kept if not 0 < revision <= head]:
            return Problem(revision=min(strays), what="a row was copied forward that was never appended")
        if head_hash != self.hash:
            return Problem(revision=head, what="the head does not have the hash of the newest row")
        if wrong := live ^ self.current:
            what = "the table of live objects does not agree with the log about it"
            return Problem(revision=min(wrong), what=what)
        if told := self.erasures.finish():
            return Problem(revision=told[0], what=told[1])
        return None

    def _follows(self, revision: int) -> Problem | None:
        if revision == self.revision + 1:
            return None
        if revision <= self.revision:
            return Problem(revision=revision, what="the revision occurs twice")
        return Problem(revision=self.revision + 1, what="the row is missing")

    def _link(self, revision: int, digest: bytes, stored: bytes | None, erased: Sequence[Tombstone]) -> Problem | None:
        self.hash = sha256(self.hash + digest).digest()
        self.digest, self.erased = digest, erased
        self.revision = revision
        self.states, wrong = self.erasures.row(digest, erased)
        if stored is not None and stored != self.hash:
            return Problem(revision=revision, what="the chain is broken: the row does not follow the one before it")
        if wrong:
            return Problem(revision=revision, what=wrong)
        if revision in self.kept and self.kept[revision] != self.states[-1]:
            return Problem(revision=revision, what="the row copied forward is not the one that was appended")
        if self.anchors.get(revision, self.hash) != self.hash:
            return Problem(revision=revision, what="history up to here is not the one of which the hash was noted")
        return None


async def verify(
    session: Session,
    *,
    anchors: Mapping[int, bytes] | None = None,
    log_ids: Collection[UUID] = (),
    archived: Iterable[ArchivedRow] = (),
) -> Verdict:
    """Recompute the chain from the beginning to the head. Reads all history once, in bounded memory (but for one number
    per live object). ``log_ids``: which log it was when the anchors were noted. ``archived``: the rows of its archives,
    in order; each has to be the one that was appended."""
    async with session.snapshot():
        # The lock keeps partitions from being dropped under a snapshot that does not see their survivors yet.
        await session.execute(
            "lock table kubechronicle.log in access share mode; set local statement_timeout = 0;"
            "set local enable_sort = off; set local enable_seqscan = off"
        )
        log_id, head, head_hash = (await session.fetch(_HEAD))[0]
        kept: dict[int, bytes] = {}
        left: dict[int, Left] = {}
        check = ChainCheck(hash=sha256(log_id.bytes).digest(), anchors=anchors or {}, kept=kept, left=left)
        problem = _another_log(log_id, log_ids)
        async with aclosing(session.rows(_KEPT, chunk=CHUNK)) as chunks:
            async for chunk in chunks:
                kept.update((row["revision"], digest_of(row)) for row in chunk)
                left.update(
                    (row["revision"], found) for row in chunk if (found := erasures.left_in(_columns(row))) is not None
                )
                told = (row for row in chunk if row["resource"] == erasures.RESOURCE)
                problem = next(filter(None, map(check.entry, told)), problem)
        beside = _Beside(iter(archived))
        problem = problem or await _follow(session, check, beside) or beside.finish(head)
        if problem is None:
            live = {row[0] for row in await session.fetch("select revision from kubechronicle.live")}
            problem = check.finish(head, bytes(head_hash), live)
        if problem is None and (wrong := await session.fetch(_WRONG_LIVE)):
            problem = Problem(revision=wrong[0][0], what="the table of live objects contradicts the log about it")
    return Verdict(
        problem=problem,
        revision=check.revision,
        hash=check.hash,
        rows=check.rows,
        tombstones=check.tombstones,
        archived=beside.seen,
        unerased=beside.unerased,
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
    return Problem(revision=0, what=f"this is log {log_id}, not log {other}: it was made anew, or is another's")


@dataclass(slots=True)
class _Beside:
    """Archived rows, compared with the chain as it passes them."""

    rows: Iterator[ArchivedRow]
    seen: int = 0
    unerased: int = 0
    _next: ArchivedRow | None = None
    _begun: bool = False

    def passed(self, check: ChainCheck, *, stored: bool) -> Problem | None:
        """The chain has come to its revision; ``stored``: by a row of the log."""
        if not self._begun:
            self._begun, self._next = True, next(self.rows, None)
        row = self._next
        if row is None or row.revision > check.revision:
            return None
        if row.revision < check.revision:
            return Problem(revision=row.revision, what="the archives have this revision twice")
        if row.hash != check.hash or row.digest != check.digest or row.content not in check.states:
            return Problem(revision=row.revision, what="the archived row is not the one that was appended")
        self.unerased += row.content != check.states[-1]
        if check.erased and row.content == check.states[-1]:
            check.erasures.left(row.revision, erasures.left_in(row.columns), check.erased)
        self.seen += not stored
        self._next = next(self.rows, None)
        return None

    def finish(self, head: int) -> Problem | None:
        left = self._next if self._begun else next(self.rows, None)
        if left is None:
            return None
        return Problem(revision=left.revision, what=f"it is archived, but the newest revision is {head}")


async def _follow(session: Session, check: ChainCheck, beside: _Beside) -> Problem | None:
    """Feed rows and tombstones in the order of their revisions. While a partition is being dropped a revision may be
    there as both; then the row speaks, and its tombstone has to agree."""
    erased = _Erased(session.rows(_ERASED, chunk=CHUNK))

    async def gone(link: tuple[int, bytes]) -> Problem | None:
        return check.tombstone(*link, await erased.of(link[0])) or beside.passed(check, stored=False)

    async with (
        aclosing(erased.chunks),
        aclosing(_tombstones(session)) as tombstones,
        aclosing(session.rows(_LOG, chunk=CHUNK)) as chunks,
    ):
        tombstone = await anext(tombstones, None)
        async for chunk in chunks:
            for row in chunk:
                while tombstone is not None and tombstone[0] <= row["revision"]:
                    if tombstone[0] < row["revision"]:
                        if problem := await gone(tombstone):
                            return problem
                    elif tombstone[1] != row["digest"]:
                        return Problem(revision=tombstone[0], what="the tombstone is not of the row that was appended")
                    tombstone = await anext(tombstones, None)
                if problem := check.row(row, await erased.of(row["revision"])) or beside.passed(check, stored=True):
                    return problem
        while tombstone is not None:
            if problem := await gone(tombstone):
                return problem
            tombstone = await anext(tombstones, None)
        return await erased.finish()


class _Erased:
    """What was erased, looked up as the chain passes."""

    def __init__(self, chunks: AsyncGenerator[Sequence[Row], None]) -> None:
        self.chunks = chunks
        self._read: deque[Tombstone] = deque()
        self._over = False

    async def of(self, revision: int) -> Sequence[Tombstone]:
        found: list[Tombstone] = []
        while (following := await self._next()) is not None and following.revision <= revision:
            found.append(self._read.popleft())
        return found

    async def finish(self) -> Problem | None:
        left = await self._next()
        return Problem(revision=left.revision, what="it was erased, but there is no such revision") if left else None

    async def _next(self) -> Tombstone | None:
        if not self._read and not self._over:
            chunk = await anext(self.chunks, None)
            self._over = chunk is None
            self._read.extend(Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in chunk or ())
        return self._read[0] if self._read else None


async def _tombstones(session: Session) -> AsyncGenerator[tuple[int, bytes], None]:
    """(revision, digest) in order: the classes' entries for one thousand revisions are merged."""
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
