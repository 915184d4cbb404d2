"""Everything the log may raise. Foreign errors (asyncpg, OSError) are translated at the one edge, postgres.py."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from kubechronicle.eventlog.records import Moment, Refused


class LogError(Exception):
    """Base of all errors of the log."""


class LogUnavailable(LogError):
    """The database did not answer, and what was asked has certainly not happened. Safe to try again."""


class NotSoleAppender(LogUnavailable):
    """Another server has claimed to be the only one that appends (sole.py): certainly nothing happened."""


class OutcomeUnknown(LogError):
    """The connection was lost between sending a batch and its answer: ask ``settle(batch_id)``."""

    def __init__(self, batch_id: UUID) -> None:
        super().__init__(f"outcome of batch {batch_id} is unknown")
        self.batch_id = batch_id


class Compacted(LogError):
    """The revision asked for is at or below the compacted revision: its history is gone (etcd: ErrCompacted)."""

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(f"revision {requested} has been compacted (compacted revision is {compacted})")
        self.requested = requested
        self.compacted = compacted


class FutureRevision(LogError):
    """The revision asked for is above the newest one (etcd: ErrFutureRev)."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is above the newest revision {current}")
        self.requested = requested
        self.current = current


class BeforeHistory(LogError):
    """The moment asked for lies before the oldest there is (None: the log is empty)."""

    def __init__(self, oldest: Moment | None) -> None:
        since = f"{oldest.time.isoformat()}, revision {oldest.revision}" if oldest is not None else "no revision yet"
        super().__init__(f"history begins at {since}")
        self.oldest = oldest


class FutureMoment(LogError):
    """The time asked for is later than ``now``, the log's clock."""

    def __init__(self, asked: datetime, now: datetime) -> None:
        super().__init__(f"{asked.isoformat()} is in the future: it is {now.isoformat()}")
        self.asked = asked
        self.now = now


class NotArchived(LogError):
    """Nothing is dropped: it is to be archived before, and there is no directory for it here."""

    def __init__(self) -> None:
        super().__init__("what is dropped is to be archived before, and no directory is given")


class TooMany(LogError):
    """More changes would have to be looked at than one question may cost."""

    def __init__(self, changes: int, limit: int) -> None:
        super().__init__(f"{changes} changes are more than can be counted at once, which is {limit}")
        self.changes = changes
        self.limit = limit


class LogCorrupt(LogError):
    """The log contradicts itself (a gap in the revisions, a broken hash chain). Never ignored."""


class SetupError(LogError):
    """The operator's mistake (wrong URL, schema not migrated, too old Postgres): one line, with how to mend it."""


class RefusedError(LogError):
    """The transaction did not commit: a key did not have the expected revision. The local views show why by now."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.key} is at revision {refused.actual}, not at {refused.expected}")
        self.refused = refused


class OutcomeUnknownForNow(LogError):
    """The caller's deadline passed while it is not known whether the change commits, or before it was applied here.
    Neither success nor failure: settling goes on without the caller, and a later read shows what happened."""


class QueueFull(LogError):
    """The appender's line is at its bound: nothing happened, try again later."""

    def __init__(self, capacity: int) -> None:
        super().__init__(f"{capacity} changes are waiting for the log already")
        self.capacity = capacity
