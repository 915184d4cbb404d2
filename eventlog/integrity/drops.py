"""Drops: partitions that retention dropped, and the proof that only these rows are gone. Sans-IO.

Of a dropped row the digest is left, so that the chain still links. A writer of the database could leave the digest of
any row in the same way, and remove its contents. So the log itself records each drop, as the creation of an object,
which is chained and covered by checkpoints as every change:

    kubechronicle.tombstones   (class, revision, digest)     the digests that are left
    entry of the log           Drop.spec: class, first and last revision, number and digest of these
                               kept: number and digest of all rows copied forward, which only drops replace

    digest = sha256(sha256(int8 revision || digest, for each of the first thousand), sha256(of the second), …)

A tombstone counts only within a recorded drop of its class, and a drop only below the mark of its class. Drops are
whole: no row of the class is left within one, unless its partition is still being detached, nor before one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import orjson

from kubechronicle.eventlog.integrity.digests import SHORT, usual_class
from kubechronicle.eventlog.records import Head

RESOURCE: Final = "drops.history.kubechronicle.dev"
"""The resource of the objects that record drops. They are served only as revisions and in SQL."""
KIND: Final = "Drop"
UNKNOWN: Final = "unknown"
"""The class of tombstones from backups without classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """One drop.

    ``revisions``, ``digest``: of its tombstones. ``kept``, ``kept_digest``: of all rows copied forward, after it.
    ``role``: the database role. ``revision``, ``dropped_at``: of the entry in the log.
    """

    name: str
    retention_class: str
    first: int
    last: int
    revisions: int
    digest: bytes
    kept: int
    kept_digest: bytes
    role: str
    revision: int
    dropped_at: datetime


def parse(body: bytes | str, *, revision: int, dropped_at: datetime) -> Drop:
    """Return the drop in an entry's object. ValueError: it is not a drop."""
    try:
        entry = orjson.loads(body)
        spec = entry["spec"]
        if entry["kind"] != KIND or not 0 < int(spec["first"]) <= int(spec["last"]) < revision:
            raise ValueError("it is of another kind, or about no earlier revisions")
        return Drop(
            name=str(entry["metadata"]["name"]),
            retention_class=str(spec["class"]),
            first=int(spec["first"]),
            last=int(spec["last"]),
            revisions=int(spec["revisions"]),
            digest=bytes.fromhex(spec["digest"]),
            kept=int(spec["kept"]["revisions"]),
            kept_digest=bytes.fromhex(spec["kept"]["digest"]),
            role=str(spec["databaseRole"]),
            revision=revision,
            dropped_at=dropped_at,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no drop: {error}") from None


@dataclass(slots=True)
class DigestSum:
    """The digest of (revision, digest) pairs, added in revision order. See the head of this file."""

    count: int = 0
    _thousand: int = -1
    _inner: Any = field(default_factory=sha256)
    _outer: Any = field(default_factory=sha256)

    def add(self, revision: int, digest: bytes) -> None:
        if revision // 1000 != self._thousand:
            self._end_thousand()
            self._thousand = revision // 1000
        self._inner.update(revision.to_bytes(8, "big", signed=True) + digest)
        self.count += 1

    def digest(self) -> bytes:
        """Return the digest; add no more."""
        self._end_thousand()
        return bytes(self._outer.digest())

    def _end_thousand(self) -> None:
        if self._thousand >= 0:
            self._outer.update(self._inner.digest())
        self._inner, self._thousand = sha256(), -1


class DropCheck:
    """Compares rows and tombstones with the recorded drops. Memory: a sum for each drop.

    ``drops``: as read beforehand. ``prove`` must be called for each one's entry in the chain.
    """

    def __init__(self, drops: Iterable[Drop] = ()) -> None:
        self.drops = sorted(drops, key=lambda drop: (drop.retention_class, drop.first))
        self.newest = max(self.drops, key=lambda drop: drop.revision, default=None)
        self._sums = {drop.name: DigestSum() for drop in self.drops}
        self._by_class: dict[str, list[Drop]] = {}
        for drop in self.drops:
            self._by_class.setdefault(drop.retention_class, []).append(drop)
        self._firsts = {name: [drop.first for drop in of] for name, of in self._by_class.items()}
        self._proven: set[int] = set()
        self._kept = DigestSum()

    def add_kept(self, revision: int, digest: bytes) -> None:
        """Add a row copied forward with its stored digest, in revision order."""
        self._kept.add(revision, digest)

    def add_row(self, retention_class: str, revision: int, digest: bytes) -> str:
        """Add a row of the log; return its problem, or ""."""
        of_class = self._by_class.get(retention_class)
        if of_class is None or revision > of_class[-1].last:
            return ""
        drop = self._covering(retention_class, revision)
        if drop is None:
            return f"it was left out when later rows of the class {retention_class} were dropped"
        self._sums[drop.name].add(revision, digest)
        return ""

    def add_tombstone(self, retention_class: str, revision: int, digest: bytes) -> str:
        """Add a tombstone; return its problem, or ""."""
        drop = self._covering(retention_class, revision)
        if drop is None:
            return "its contents are gone, and no drop of its partition is recorded"
        self._sums[drop.name].add(revision, digest)
        return ""

    def prove(self, drop: Drop) -> str:
        """Note that the chain has the drop's entry; return its problem, or ""."""
        if drop not in self.drops:
            return "it records a drop that was not found before"
        self._proven.add(drop.revision)
        return ""

    def finish(self, marks: Head | None, noted: Iterable[tuple[int, Head]] = ()) -> tuple[int, str] | None:
        """Return (revision, problem) of the first drop that is wrong; None: there is none.

        ``marks``: the present ones. ``noted``: revisions, each with the marks at that time.
        """
        problems = [(drop.revision, why) for drop in self.drops if (why := self._problem(drop))]
        for until, each in [*noted, *([(2**63, marks)] if marks is not None else [])]:
            problems += [
                (drop.revision, f"it records a drop up to revision {drop.last}, above the mark {mark}")
                for drop in self.drops
                if drop.revision <= until and drop.last > (mark := class_mark(each, drop))
            ]
        if self.newest is not None and (self._kept.count, self._kept.digest()) != (
            self.newest.kept,
            self.newest.kept_digest,
        ):
            problems.append((self.newest.revision, "the rows copied forward are not those after the newest drop"))
        return min(problems) if problems else None

    def _problem(self, drop: Drop) -> str:
        if drop.revision not in self._proven:
            return "the drop that it records is not in the chain"
        found = self._sums[drop.name]
        if (found.count, found.digest()) != (drop.revisions, drop.digest):
            return f"it records the drop of {drop.revisions} rows, but there are {found.count} others, or other ones"
        return ""

    def _covering(self, retention_class: str, revision: int) -> Drop | None:
        of_class = self._by_class.get(retention_class)
        if of_class is None:
            return None
        place = bisect_right(self._firsts[retention_class], revision) - 1
        return of_class[place] if place >= 0 and revision <= of_class[place].last else None


def class_mark(marks: Head, drop: Drop) -> int:
    """Return the mark at or below which no resource of the drop's class has history."""
    if drop.retention_class == "short":
        return min(marks.compacted_for(name) for name in SHORT)
    if drop.retention_class == "long":
        own = [mark for name, mark in marks.compacted_of.items() if usual_class(name) == "long"]
        return min([marks.compacted, *own])
    return marks.newest_mark


def marks_moved_back(earlier: Head, now: Head) -> str:
    """Return the resource whose mark is lower than before, OTHERS for all others, or ""."""
    if now.compacted < earlier.compacted:
        return "all other resources"
    back = [name for name in earlier.compacted_of if now.compacted_for(name) < earlier.compacted_of[name]]
    return min(back, default="")


def summaries(drops: Iterable[Drop]) -> list[str]:
    """Return a line for each class: there may be hundreds of drops."""
    by_class: dict[str, list[Drop]] = {}
    for drop in drops:
        by_class.setdefault(drop.retention_class, []).append(drop)
    lines = []
    for name, of in sorted(by_class.items()):
        newest = max(of, key=lambda drop: drop.revision)
        number = f"{len(of)} partition{'' if len(of) == 1 else 's'} of the class {name}"
        lines.append(
            f"dropped: {number}, revisions {of[0].first} to {of[-1].last}, {sum(drop.revisions for drop in of)} "
            f"changes; the newest recorded by revision {newest.revision} at {newest.dropped_at.isoformat()} "
            f"(database role {newest.role})"
        )
    return lines


# The confidential resources of SQL, which the log records too

CONFIDENTIAL: Final = "confidentialresources.history.kubechronicle.dev"
ALWAYS: Final = ("secrets",)
"""The confidential resources until an entry says otherwise."""


def parse_confidential(body: bytes | str) -> tuple[str, ...]:
    """Return the confidential resources in an entry's object. ValueError: it is no such entry."""
    try:
        spec: Mapping[str, Any] = orjson.loads(body)["spec"]
        return tuple(sorted(map(str, spec["resources"])))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no list of confidential resources: {error}") from None
