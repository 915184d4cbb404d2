"""The moves of marks: who moved the compacted revisions, when and why, and the proof that nobody did so unseen.

At or below its mark, a resource has no history for any reader. A writer of the database could hide all history by
raising a mark. So each move is a row of its own chain:

    hash(n) = sha256(hash(n-1) || sha256(encoding of the other columns of row n))      hash(0) = the empty text

The encoding is that of digests.py. A row has the newest revision of the log at that time, with its hash in the log's
own chain. The present marks must be those of the newest move; a log without moves has none. A checkpoint has the number
and hash of the newest move, and so covers all before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import orjson

from kubechronicle.eventlog.integrity.digests import EPOCH
from kubechronicle.eventlog.records import Head

NO_MOVE: Final = b""
_INT8, _TEXT, _BYTEA, _TIMESTAMPTZ = 20, 25, 17, 1184
_HEAD: Final = struct.Struct("!ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkMove:
    """One move. ``compacted_of``: JSON, as the digest covers it."""

    number: int
    moved_at: datetime
    actor: str
    role: str
    reason: str
    compacted: int
    compacted_of: str
    revision: int
    revision_hash: bytes
    hash: bytes

    @property
    def marks(self) -> Head:
        of: Mapping[str, int] = orjson.loads(self.compacted_of)
        return Head(revision=self.revision, compacted=self.compacted, compacted_of={k: int(v) for k, v in of.items()})

    def digest(self) -> bytes:
        """Return the digest of the columns before the hash."""
        microseconds = (self.moved_at - EPOCH) // timedelta(microseconds=1)
        columns: tuple[tuple[int, bytes], ...] = (
            (_INT8, self.number.to_bytes(8, "big", signed=True)),
            (_TIMESTAMPTZ, microseconds.to_bytes(8, "big", signed=True)),
            (_TEXT, self.actor.encode()),
            (_TEXT, self.role.encode()),
            (_TEXT, self.reason.encode()),
            (_INT8, self.compacted.to_bytes(8, "big", signed=True)),
            (_TEXT, self.compacted_of.encode()),
            (_INT8, self.revision.to_bytes(8, "big", signed=True)),
            (_BYTEA, self.revision_hash),
        )
        encoded = b"".join(_HEAD.pack(oid, len(data)) + data for oid, data in columns)
        return sha256(len(columns).to_bytes(4, "big") + encoded).digest()


MOVES: Final = """
select number, moved_at, actor, role, reason, compacted_long, compacted_of, revision, revision_hash, hash
from kubechronicle.mark_moves order by number
"""


def move_of(row: Sequence[Any]) -> MarkMove:
    """Return the move in a row of MOVES."""
    number, moved_at, actor, role, reason, compacted, compacted_of, revision, revision_hash, hash_ = row[:10]
    return MarkMove(
        number=number,
        moved_at=moved_at,
        actor=actor,
        role=role,
        reason=reason,
        compacted=compacted,
        compacted_of=compacted_of,
        revision=revision,
        revision_hash=bytes(revision_hash),
        hash=bytes(hash_),
    )


def wrong_move(moves: Sequence[MarkMove]) -> str:
    """Return the problem with the chain of moves, "" if there is none."""
    before, marks = NO_MOVE, Head(revision=0, compacted=0)
    for number, move in enumerate(moves, 1):
        if move.number != number:
            return f"move {number} of the marks is missing"
        if move.hash != sha256(before + move.digest()).digest():
            return f"move {number} of the marks was edited: it does not have its hash"
        try:
            present = move.marks
        except (ValueError, TypeError, AttributeError):
            return f"move {number} of the marks has no marks"
        if present.compacted < marks.compacted:
            return f"move {number} of the marks moved them back"
        before, marks = move.hash, present
    return ""


def wrong_marks(moves: Sequence[MarkMove], present: Head) -> str:
    """Return the problem with the present marks, "" if they are those of the newest move."""
    recorded = moves[-1].marks if moves else Head(revision=0, compacted=0)
    if (present.compacted, dict(present.compacted_of)) == (recorded.compacted, dict(recorded.compacted_of)):
        return ""
    where = f"move {moves[-1].number} says" if moves else "no move is recorded, which says"
    return f"the marks are {shown(present)}, but {where} {shown(recorded)}: history was hidden, or brought back"


def shown(marks: Head) -> str:
    """Return marks as text: ``*=300 events=900``."""
    return " ".join((f"*={marks.compacted}", *(f"{name}={mark}" for name, mark in sorted(marks.compacted_of.items()))))


def summary(moves: Sequence[MarkMove]) -> list[str]:
    """Return a line about the moves, none without one."""
    if not moves:
        return []
    last = moves[-1]
    at, by = last.moved_at.isoformat(), last.actor or "nobody"
    times = "once" if len(moves) == 1 else f"{len(moves)} times"
    why = f": {last.reason}" if last.reason else ""
    return [f"marks: moved {times}, last to {shown(last.marks)} at {at}, by {by} (database role {last.role}){why}"]
