"""Proving that history was not edited: the hash chain recomputed from the rows themselves, in Python and not by the
database whose word is in question.

    digest(r) = sha256(encoding of every column of row r)      hash(r) = sha256(hash(r-1) || digest(r))
    hash(0)   = sha256(log_id)

The encoding is Postgres' record_send: the number of columns, then for each its type's oid, its length and its binary
form; big-endian, -1 as length for null. Rows whose partition was dropped are represented by their digests
(tombstones). Whoever rewrites all rows from one point on, with digests, hashes and the head, is found out by an
``anchor``: a revision and its hash, noted earlier and elsewhere.

``ChainCheck`` is sans-IO; ``verify`` feeds it from one snapshot of the database.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from kubechronicle.eventlog.postgres_session import Row, Session

CHUNK = 1000  # rows at a time

# The columns in the order of the digest, with the oid of their type.
_INT8, _INT2, _TEXT, _TEXT_ARRAY, _JSON, _TIMESTAMPTZ = 20, 21, 25, 1009, 114, 1184
DIGESTED: tuple[tuple[str, int], ...] = (
    ("revision", _INT8),
    ("create_revision", _INT8),
    ("version", _INT8),
    ("previous_revision", _INT8),
    ("committed_at", _TIMESTAMPTZ),
    ("operation", _INT2),
    ("resource", _TEXT),
    ("namespace", _TEXT),
    ("name", _TEXT),
    ("uid", _TEXT),
    ("user_name", _TEXT),
    ("user_uid", _TEXT),
    ("user_groups", _TEXT_ARRAY),
    ("user_extra", _JSON),
    ("impersonator", _TEXT),
    ("verb", _TEXT),
    ("request_uri", _TEXT),
    ("user_agent", _TEXT),
    ("source_address", _TEXT),
    ("field_manager", _TEXT),
    ("audit_id", _TEXT),
    ("object", _JSON),
)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # Postgres'
_COLUMN_HEAD = struct.Struct("!ii")
_FIXED = {
    _INT8: struct.Struct("!iiq"),
    _INT2: struct.Struct("!iih"),
}

_COLUMNS = ", ".join(name for name, _ in DIGESTED) + ", digest, hash"
_HEAD = "select log_id, revision, hash from kubechronicle.head"
_LOG = f"select {_COLUMNS} from kubechronicle.log order by revision"
_KEPT = f"select {_COLUMNS} from kubechronicle.kept order by revision"
_TOMBSTONES = "select thousand, revisions, digests from kubechronicle.tombstones order by thousand"
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
    """A row read from an archive. ``columns``: as in the log, by name. ``digest`` is computed from them, ``hash`` is as
    the row says."""

    revision: int
    columns: dict[str, Any]
    digest: bytes
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``problem`` None: revisions 1 to ``revision`` are what was appended; ``hash`` is worth noting elsewhere."""

    problem: Problem | None
    revision: int
    hash: bytes
    rows: int  # checked by their content
    tombstones: int  # checked by their digest, their content being gone
    archived: int = 0  # of these, checked by their content in archives


def encode_row(values: Sequence[Any]) -> bytes:
    """The canonical encoding of a row, from its values in the order of DIGESTED."""
    parts = [len(DIGESTED).to_bytes(4, "big")]
    for value, (_, oid) in zip(values, DIGESTED, strict=True):
        if value is None:
            parts.append(_COLUMN_HEAD.pack(oid, -1))
        elif oid == _INT8:
            parts.append(_FIXED[_INT8].pack(oid, 8, value))
        elif oid == _INT2:
            parts.append(_FIXED[_INT2].pack(oid, 2, value))
        elif oid == _TIMESTAMPTZ:
            parts.append(_FIXED[_INT8].pack(oid, 8, (value - _EPOCH) // timedelta(microseconds=1)))
        else:
            data = _encode_array(value) if oid == _TEXT_ARRAY else value.encode()
            parts.append(_COLUMN_HEAD.pack(oid, len(data)) + data)
    return b"".join(parts)


def _encode_array(values: Sequence[str]) -> bytes:
    """array_send of text[]: dimensions, whether it has nulls, element type; per dimension length and lower bound."""
    if not values:
        return struct.pack("!iii", 0, 0, _TEXT)
    parts = [struct.pack("!iiiii", 1, 0, _TEXT, len(values), 1)]
    for value in values:
        data = value.encode()
        parts.append(len(data).to_bytes(4, "big") + data)
    return b"".join(parts)


def digest_of(row: Row) -> bytes:
    return sha256(encode_row(row[: len(DIGESTED)])).digest()


@dataclass(slots=True)
class ChainCheck:
    """Follows the chain: feed it every revision in order, by ``row`` or ``tombstone``, then ``finish``.

    Each call answers the problem found, if any; after the first one there is nothing more to learn.
    ``kept``: the digests (computed from content) of rows that were copied forward, by revision.
    """

    hash: bytes
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    kept: Mapping[int, bytes] = field(default_factory=dict)
    revision: int = 0
    rows: int = 0
    tombstones: int = 0
    digest: bytes = b""  # of the newest revision
    current: set[int] = field(default_factory=set)  # the revisions of the objects that exist
    _committed_at: datetime = _EPOCH - timedelta(days=365 * 100)

    def row(self, row: Row) -> Problem | None:
        revision: int = row["revision"]
        digest = digest_of(row)
        if problem := self._follows(revision):
            return problem
        if digest != row["digest"]:
            return Problem(revision=revision, what="the row was edited: its content does not have its digest")
        if row["committed_at"] < self._committed_at:
            return Problem(revision=revision, what="it was committed before the revision before it")
        self._committed_at = row["committed_at"]
        if problem := self._link(revision, digest, row["hash"]):
            return problem
        self.rows += 1
        self.current.discard(row["previous_revision"])
        if row["operation"] != 3:
            self.current.add(revision)
        return None

    def tombstone(self, revision: int, digest: bytes) -> Problem | None:
        if problem := self._follows(revision) or self._link(revision, digest, None):
            return problem
        self.tombstones += 1
        if revision in self.kept:
            self.current.add(revision)
        return None

    def finish(self, head: int, head_hash: bytes, live: set[int]) -> Problem | None:
        if head != self.revision:
            what = f"the newest row is {self.revision}, but the head says {head}"
            return Problem(revision=min(head, self.revision) + 1, what=what)
        if beyond := [revision for revision in self.anchors if revision > head]:
            what = f"history ends before revision {max(beyond)}, of which the hash was noted"
            return Problem(revision=head + 1, what=what)
        if head_hash != self.hash:
            return Problem(revision=head, what="the head does not have the hash of the newest row")
        if wrong := live ^ self.current:
            what = "the table of live objects does not agree with the log about it"
            return Problem(revision=min(wrong), what=what)
        return None

    def _follows(self, revision: int) -> Problem | None:
        if revision == self.revision + 1:
            return None
        if revision <= self.revision:
            return Problem(revision=revision, what="the revision occurs twice")
        return Problem(revision=self.revision + 1, what="the row is missing")

    def _link(self, revision: int, digest: bytes, stored: bytes | None) -> Problem | None:
        self.hash = sha256(self.hash + digest).digest()
        self.digest = digest
        self.revision = revision
        if stored is not None and stored != self.hash:
            return Problem(revision=revision, what="the chain is broken: the row does not follow the one before it")
        if revision in self.kept and self.kept[revision] != digest:
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
        async with aclosing(session.rows(_KEPT, chunk=CHUNK)) as chunks:
            async for chunk in chunks:
                kept.update((row["revision"], digest_of(row)) for row in chunk)
        check = ChainCheck(hash=sha256(log_id.bytes).digest(), anchors=anchors or {}, kept=kept)
        beside = _Beside(iter(archived))
        problem = _another_log(log_id, log_ids) or await _follow(session, check, beside) or beside.finish(head)
        if problem is None:
            live = {row[0] for row in await session.fetch("select revision from kubechronicle.live")}
            problem = check.finish(head, bytes(head_hash), live)
        if problem is None and (wrong := await session.fetch(_WRONG_LIVE)):
            problem = Problem(revision=wrong[0][0], what="the table of live objects contradicts the log about it")
    return Verdict(
        problem=problem, revision=check.revision, hash=check.hash, rows=check.rows, tombstones=check.tombstones,
        archived=beside.seen,
    )  # fmt: skip


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
        if row.hash != check.hash or row.digest != check.digest:
            return Problem(revision=row.revision, what="the archived row is not the one that was appended")
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
    async with aclosing(_tombstones(session)) as tombstones, aclosing(session.rows(_LOG, chunk=CHUNK)) as chunks:
        tombstone = await anext(tombstones, None)
        async for chunk in chunks:
            for row in chunk:
                while tombstone is not None and tombstone[0] <= row["revision"]:
                    if tombstone[0] < row["revision"]:
                        if problem := check.tombstone(*tombstone) or beside.passed(check, stored=False):
                            return problem
                    elif tombstone[1] != row["digest"]:
                        return Problem(revision=tombstone[0], what="the tombstone is not of the row that was appended")
                    tombstone = await anext(tombstones, None)
                if problem := check.row(row) or beside.passed(check, stored=True):
                    return problem
        while tombstone is not None:
            if problem := check.tombstone(*tombstone) or beside.passed(check, stored=False):
                return problem
            tombstone = await anext(tombstones, None)
    return None


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
