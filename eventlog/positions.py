"""Positions: how a server recognises whether the log still holds the changes that it has applied.

A log can go back. A standby that lacked the last commits is promoted, or a backup is restored. Other changes then get
the same revisions, so the number of the newest one shows nothing. The row at the applied revision does: it has
another hash.

    applied 1..105; a standby is promoted that has 1..102; others append 103'..107'
    the row 105' is not the one that was applied: everything from some revision on was lost

A connection cannot lead to another server later on. So the position is compared on each new connection, before its
first use, and with each read of the tail. The hash of the chain covers all revisions before. The server learns it when
it compares a row for the first time; a change of its own is recognised by its object and its commit time until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Diverged
from kubechronicle.eventlog.records import Key, Record

ROWS = 500  # rows compared at once
NAMED = 20  # objects named in a report


class RowIdentity(NamedTuple):
    """A row of the log without its contents. ``hash``: of the chain, b"" if it is not known."""

    revision: int
    key: Key
    uid: str
    version: int
    committed_at: datetime
    hash: bytes = b""

    def is_row_of(self, other: RowIdentity) -> bool:
        """Return whether both are the same row. An erasure may have changed its name, and nothing else here."""
        mine, others = (one.key[:2] + one[2:5] for one in (self, other))
        return self.revision == other.revision and mine == others


class Position:
    """The applied revision, with what is known of its row: its hash, its identity, or both."""

    __slots__ = ("hash", "identity", "revision")

    def __init__(self, revision: int, *, hash: bytes = b"", identity: RowIdentity | None = None) -> None:
        self.revision = revision
        self.hash = hash
        self.identity = identity

    @classmethod
    def after(cls, record: Record) -> Position:
        return cls(record.revision, identity=identity_of(record))

    def confirm(self, row: RowIdentity | None, *, newest: int, compacted: int) -> None:
        """Compare with the log's row at this revision, and note its hash. Diverged: it is another row, or gone.

        ``newest``: the newest revision in the log.
        ``compacted``: the revision up to which rows may be gone.
        """
        if row is None:
            if newest < self.revision or self.revision > compacted:
                raise Diverged(self.revision, newest)
            return
        if (self.hash and self.hash != row.hash) or (self.identity and not self.identity.is_row_of(row)):
            raise Diverged(self.revision, newest)
        self.hash = row.hash


def identity_of(record: Record) -> RowIdentity:
    return RowIdentity(record.revision, record.key, record.uid, record.version, record.committed_at)


class Identities(Protocol):
    """``RevisionLog.identities``."""

    async def __call__(self, revisions: Sequence[int]) -> Sequence[RowIdentity]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Changes that this server had applied and the log holds no more.

    ``after``: the newest revision that is known to be the same; None: memory does not reach back to it.
    ``until``: the revision that was applied. ``now``: the newest revision in the log that was found.
    ``changes``: those in memory.
    """

    after: int | None
    until: int
    now: int
    changes: tuple[tuple[int, Key], ...]

    @property
    def objects(self) -> list[Key]:
        return sorted({key for _, key in self.changes})

    def summary(self) -> str:
        """Say what was lost, in one line."""
        first = self.changes[0][0] if self.changes else self.until
        whole = "" if self.after is not None else ", and earlier ones that are no longer in memory"
        named = ", ".join(
            f"{key.resource} {key.namespace}/{key.name}".replace(" /", " ") for key in self.objects[:NAMED]
        )
        more = f" and {len(self.objects) - NAMED} more" if len(self.objects) > NAMED else ""
        return (
            f"the database went back: revisions {first} to {self.until}, which this server had applied, are not in it "
            f"(it now ends at {self.now}). Lost: {len(self.changes)} changes of {len(self.objects)} objects{whole}: "
            f"{named}{more}. Was a standby promoted that lacked them, or a backup restored?"
        )


async def find_loss(identities: Identities, events: Iterable[Event], *, applied: int, now: int) -> Loss:
    """Compare the changes in memory with the log, from the newest one back to the first that is the same."""
    lost: list[tuple[int, Key]] = []
    known = sorted(events, key=lambda event: event.revision, reverse=True)
    for start in range(0, len(known), ROWS):
        part = known[start : start + ROWS]
        rows = await identities([event.revision for event in part])
        found = {row.revision: (row.uid, row.version, row.committed_at) for row in rows}
        for event in part:
            entry = event.entry
            if found.get(event.revision) == (entry.uid, entry.version, event.committed_at):
                return Loss(after=event.revision, until=applied, now=now, changes=tuple(reversed(lost)))
            lost.append((event.revision, entry.key))
    return Loss(after=None, until=applied, now=now, changes=tuple(reversed(lost)))
