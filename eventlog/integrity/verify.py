"""Verification that history was not edited: recomputes the hash chain from the rows, in Python, not in the database
that is under test.

    digest(r) = sha256(encoding of every column of row r)      hash(r) = sha256(hash(r-1) || digest(r))
    hash(0)   = sha256(log_id)

The encoding is that of digests.py. Rows of dropped partitions are represented by their digests (tombstones). An
``anchor``, a revision and its hash noted earlier elsewhere, detects an attacker who rewrites all rows from one point
on, with digests, hashes and head. For an erased row, the chain has the stored digest, and the rest of the row must have
the digest in its tombstone (erasures.py).

A jump passes over revisions that have no rows (jumps.py). ``ChainCheck`` (chain.py) is sans-IO; ``verify`` feeds it
from one snapshot of the database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kubechronicle.eventlog.integrity import erasures, jumps
from kubechronicle.eventlog.integrity.chain import ChainCheck, ChainProblem, columns_of, kept_digests
from kubechronicle.eventlog.integrity.checkpoints import Checkpoint
from kubechronicle.eventlog.integrity.digests import COLUMNS
from kubechronicle.eventlog.integrity.drops import Drop, DropCheck
from kubechronicle.eventlog.integrity.erasures import Erasure, Remains, Tombstone
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.integrity.marks import MOVES, MarkMove, move_of, wrong_move
from kubechronicle.eventlog.integrity.state_check import compare_state, recorded_drops
from kubechronicle.eventlog.postgres.session import PostgresSession, Row

CHUNK = 1000  # rows at a time

_COLUMNS = ", ".join(COLUMNS) + ", digest, hash"
_HEAD = "select log_id, revision, hash from kubechronicle.head"
_LOG = f"select {_COLUMNS} from kubechronicle.log order by revision"
KEPT = f"select {_COLUMNS} from kubechronicle.kept order by revision"
_JUMPS = "select first, last, about, hash from kubechronicle.jumps order by first"
_TOMBSTONES = "select thousand, revisions, digests, class from kubechronicle.tombstones order by thousand"
ERASED = "select revision, erasure::text, was, remains from kubechronicle.erased order by revision, erasure"
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
class LogVerdict:
    """``problem`` None: revisions 1 to ``revision`` are as appended; their ``hash`` is worth noting elsewhere."""

    problem: ChainProblem | None
    revision: int
    hash: bytes
    rows: int  # verified by their content
    tombstones: int  # verified by their digest, since their content is gone
    archived: int = 0  # of the tombstones, verified by the content in archives
    erasures: tuple[tuple[Erasure, str], ...] = ()  # each with its revisions as text
    unerased: int = 0  # archived rows that still hold erased data
    jumps: tuple[Jump, ...] = ()
    drops: tuple[Drop, ...] = ()
    moves: tuple[MarkMove, ...] = ()  # of the marks


async def verify(
    session: PostgresSession,
    *,
    anchors: Mapping[int, bytes] | None = None,
    log_ids: Collection[UUID] = (),
    archived: Iterable[ArchivedRow] = (),
    checkpoints: Sequence[Checkpoint] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LogVerdict:
    """Recompute the chain from the beginning to the head. Reads all history once, in memory bounded by the number of
    live objects.

    ``anchors``: noted hashes by revision.
    ``log_ids``: the log ids noted with the anchors.
    ``archived``: the rows of the log's archives, in order; each must be the appended one.
    ``checkpoints``: states of the log to compare with, beside their hashes.
    ``progress``: called with the verified revision and the newest one, now and then.
    """
    async with session.snapshot():
        # The lock keeps partitions from being dropped under a snapshot that does not see the copied rows yet.
        await session.execute(
            "lock table kubechronicle.log in access share mode; set local statement_timeout = 0;"
            "set local enable_sort = off; set local enable_seqscan = off"
        )
        log_id, head, head_hash = (await session.fetch(_HEAD))[0]
        kept: dict[int, Collection[bytes]] = {}
        remains: dict[int, Remains] = {}
        moves = [move_of(row) for row in await session.fetch(MOVES)]
        recorded, problem = await recorded_drops(session)
        drop_check = DropCheck(recorded)
        check = ChainCheck(
            hash=sha256(log_id.bytes).digest(),
            anchors={move.revision: move.revision_hash for move in moves if move.revision} | dict(anchors or {}),
            kept=kept,
            remains=remains,
            drops=drop_check,
        )
        if wrong := wrong_move(moves):
            problem = ChainProblem(revision=0, message=wrong)
        problem = _another_log(log_id, log_ids) or problem
        problem = await _read_kept(session, check, drop_check, kept, remains) or problem
        archive_check = _ArchiveCheck(iter(archived))
        if problem is None:
            problem = await _feed(session, check, archive_check, lambda revision: progress(revision, head))
        problem = problem or archive_check.finish(head)
        if problem is None:
            live = {row[0] for row in await session.fetch("select revision from kubechronicle.live")}
            problem = check.finish(head, bytes(head_hash), live)
        if problem is None and (contradicting := await session.fetch(_WRONG_LIVE)):
            revision = contradicting[0][0]
            problem = ChainProblem(revision=revision, message="the table of live objects contradicts the log")
        problem = problem or await compare_state(session, check, drop_check, checkpoints, moves)
    return _verdict(problem, check, archive_check, drop_check, moves)


def _verdict(
    problem: ChainProblem | None,
    check: ChainCheck,
    archive_check: _ArchiveCheck,
    drop_check: DropCheck,
    moves: Sequence[MarkMove],
) -> LogVerdict:
    erased = () if problem else check.erasures.entries.values()
    return LogVerdict(
        problem=problem,
        revision=check.revision,
        hash=check.hash,
        rows=check.rows,
        tombstones=check.tombstones,
        archived=archive_check.rows_only_archived,
        unerased=archive_check.unerased,
        jumps=tuple(check.jumps),
        drops=tuple(drop_check.drops),
        moves=tuple(moves),
        erasures=tuple((entry, check.erasures.ranges(entry.id)) for entry in erased),
    )


async def _read_kept(
    session: PostgresSession,
    check: ChainCheck,
    drop_check: DropCheck,
    kept: dict[int, Collection[bytes]],
    remains: dict[int, Remains],
) -> ChainProblem | None:
    """Read the rows that were copied forward into ``kept``, what erasures left of them into ``remains``, and the
    entries of the log among them into the checks. Return the last problem of a chunk."""
    problem = None
    async with aclosing(session.rows(KEPT, chunk=CHUNK, size=_size)) as chunks:
        async for chunk in chunks:
            kept.update((row["revision"], kept_digests(row)) for row in chunk)
            for row in chunk:
                drop_check.add_kept(row["revision"], bytes(row["digest"]))
            remains.update(
                (row["revision"], rest) for row in chunk if (rest := erasures.remains_of(columns_of(row))) is not None
            )
            problem = next(filter(None, map(check.add_entry, chunk)), problem)
    return problem


def _another_log(log_id: UUID, noted: Collection[UUID]) -> ChainProblem | None:
    other = next((one for one in noted if one != log_id), None)
    if other is None:
        return None
    return ChainProblem(
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

    def compare(self, check: ChainCheck, *, stored: bool) -> ChainProblem | None:
        """Compare the archived row of the newest revision in the chain, if any. ``stored``: the log has the row too."""
        if not self._begun:
            self._begun, self._next = True, next(self.rows, None)
        row = self._next
        if row is None or row.revision > check.revision:
            return None
        if row.revision < check.revision:
            return ChainProblem(revision=row.revision, message="the archives have this revision twice")
        if row.hash != check.hash or row.digest != check.digest or row.content not in check.digests:
            return ChainProblem(revision=row.revision, message="the archived row is not the one that was appended")
        self.unerased += row.content != check.digests[-1]
        if check.erased and row.content == check.digests[-1]:
            check.erasures.add_remains(row.revision, erasures.remains_of(row.columns), check.erased)
        self.rows_only_archived += not stored
        self._next = next(self.rows, None)
        return None

    def finish(self, head: int) -> ChainProblem | None:
        rest = self._next if self._begun else next(self.rows, None)
        if rest is None:
            return None
        return ChainProblem(revision=rest.revision, message=f"it is archived, but the newest revision is {head}")


async def _feed(
    session: PostgresSession, check: ChainCheck, archive_check: _ArchiveCheck, progress: Callable[[int], None]
) -> ChainProblem | None:
    """Feed all links to the check in revision order."""
    erased = _TombstoneReader(session.rows(ERASED, chunk=CHUNK))
    async with aclosing(erased.chunks), aclosing(links(session)) as chain:
        try:
            async for link in chain:
                if problem := await _feed_one(link, check, archive_check, erased):
                    return problem
                if not check.revision % CHUNK:
                    progress(check.revision)
        except _Contradiction as found:
            return found.problem
        return await erased.finish()


async def _feed_one(
    link: Link, check: ChainCheck, archive_check: _ArchiveCheck, erased: _TombstoneReader
) -> ChainProblem | None:
    if isinstance(link, StoredJump):
        return feed_jump(check, link)
    if isinstance(link, StoredDigest):
        tombstones = await erased.of(link.revision)
        problem = check.tombstone(link.revision, link.digest, tombstones, retention_class=link.retention_class)
        return problem or archive_check.compare(check, stored=False)
    return check.row(link, await erased.of(link["revision"])) or archive_check.compare(check, stored=True)


def feed_jump(check: ChainCheck, stored: StoredJump) -> ChainProblem | None:
    """Check a jump as it is stored."""
    try:
        jump = jumps.parse(stored.revision, stored.last, stored.about)
    except ValueError as error:
        return ChainProblem(revision=stored.revision, message=str(error))
    return check.jump(jump, stored.hash)


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

    async def finish(self) -> ChainProblem | None:
        rest = await self._next()
        return (
            ChainProblem(revision=rest.revision, message="it was erased, but there is no such revision")
            if rest
            else None
        )

    async def _next(self) -> Tombstone | None:
        if not self._read and not self._over:
            chunk = await anext(self.chunks, None)
            self._over = chunk is None
            self._read.extend(Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in chunk or ())
        return self._read[0] if self._read else None


class StoredDigest(NamedTuple):
    """The digest of a row that is gone, or that was copied forward."""

    revision: int
    digest: bytes
    retention_class: str = ""


class StoredJump(NamedTuple):
    """A row of the jumps; ``revision`` is the first one."""

    revision: int
    last: int
    about: str
    hash: bytes


Link: TypeAlias = Row  # of the log, or StoredDigest, or StoredJump


class _Contradiction(Exception):
    """Two rows of one revision differ."""

    def __init__(self, problem: ChainProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


async def links(session: PostgresSession) -> AsyncGenerator[Link, None]:
    """Yield the links of the chain in order: rows of the log, digests of rows that are gone, and jumps.

    While a partition is being dropped, a revision may have a row and a digest. Then both must agree, and the row
    counts.
    """
    async with aclosing(_others(session)) as others, aclosing(session.rows(_LOG, chunk=CHUNK, size=_size)) as chunks:
        other = await anext(others, None)
        async for chunk in chunks:
            for row in chunk:
                while other is not None and other.revision <= row["revision"]:
                    if isinstance(other, StoredJump) or other.revision < row["revision"]:
                        yield other
                    elif other.digest != row["digest"]:
                        message = "the tombstone is not that of the appended row"
                        raise _Contradiction(ChainProblem(revision=other.revision, message=message))
                    other = await anext(others, None)
                yield row
        while other is not None:
            yield other
            other = await anext(others, None)


async def _others(session: PostgresSession) -> AsyncGenerator[StoredDigest | StoredJump, None]:
    """Yield digests and jumps in order; a jump before the digests of its founding rows."""
    async with aclosing(_digests(session)) as digests, aclosing(session.rows(_JUMPS, chunk=CHUNK)) as chunks:
        digest = await anext(digests, None)
        async for chunk in chunks:
            for row in chunk:
                jump = StoredJump(row["first"], row["last"], row["about"], bytes(row["hash"]))
                while digest is not None and digest.revision < jump.revision:
                    yield digest
                    digest = await anext(digests, None)
                yield jump
        while digest is not None:
            yield digest
            digest = await anext(digests, None)


async def _digests(session: PostgresSession) -> AsyncGenerator[StoredDigest, None]:
    """Yield the digests in order, merging the classes' entries of each thousand revisions."""
    gathered: list[StoredDigest] = []
    thousand = -1
    async with aclosing(session.rows(_TOMBSTONES, chunk=20)) as chunks:
        async for chunk in chunks:
            for row in chunk:
                if row["thousand"] != thousand:
                    for link in sorted(gathered):
                        yield link
                    gathered, thousand = [], row["thousand"]
                gathered += map(StoredDigest, row["revisions"], map(bytes, row["digests"]), repeat(row["class"]))
    for link in sorted(gathered):
        yield link
