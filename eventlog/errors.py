"""The errors of the log. Foreign errors (asyncpg, OSError) are translated in one file, postgres/connection.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from kubechronicle.eventlog.records import Moment, Rejected


class LogError(Exception):
    """Base of all errors of the log.

    ``sqlstate``: of Postgres' answer; "" without one. ``public``: the reason in words that every client may read. The
    texts of Postgres may name its roles, files and addresses.
    """

    sqlstate = ""
    public = ""


class LogUnavailable(LogError):
    """The database did not answer, and the call has had no effect. Safe to retry."""


class Diverged(LogUnavailable):
    """The log does not hold a change that this server has applied: it went back (positions.py)."""

    def __init__(self, applied: int, newest: int) -> None:
        super().__init__(
            f"the database does not hold revision {applied}, which this server has applied; it ends at {newest}"
        )
        self.applied = applied
        self.newest = newest


class NotSoleAppender(LogUnavailable):
    """Another server holds the claim to append alone (consistency.py). Nothing was committed."""


class Blocked(LogUnavailable):
    """A lock that another session holds kept the statement waiting. It had no effect.

    ``public``: "waits for PID 4711, LOCK TABLE …": the session, and its statement without values.
    """


class ChangesRefused(LogUnavailable):
    """The database refuses or blocks every change now (availability.py). Nothing was committed.

    ``passes``: it may pass without an operator, so a client may try again soon.
    """

    def __init__(self, text: str, reason: LogError) -> None:
        super().__init__(text)
        self.sqlstate = reason.sqlstate
        self.public = reason.public
        self.blocked = isinstance(reason, Blocked)
        self.passes = isinstance(reason, LogUnavailable)


class OutcomeUnknown(LogError):
    """The connection was lost between sending a batch and its answer: call ``settle(batch)``."""

    def __init__(self, batch_id: UUID, sqlstate: str = "") -> None:
        super().__init__(f"outcome of batch {batch_id} is unknown")
        self.batch_id = batch_id
        self.sqlstate = sqlstate


class Compacted(LogError):
    """The history of the requested revision is gone: it is below the compacted revision (etcd: ErrCompacted).

    For a compaction: the revision is at or below the compacted revision already.
    """

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(f"revision {requested} has been compacted (compacted revision is {compacted})")
        self.requested = requested
        self.compacted = compacted


class FutureRevision(LogError):
    """The requested revision is above the newest one (etcd: ErrFutureRev)."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is above the newest revision {current}")
        self.requested = requested
        self.current = current


class BeforeHistory(LogError):
    """The requested moment is before ``oldest``, the oldest one in the log (None: the log is empty)."""

    def __init__(self, oldest: Moment | None) -> None:
        since = f"{oldest.time.isoformat()}, revision {oldest.revision}" if oldest is not None else "no revision yet"
        super().__init__(f"history begins at {since}")
        self.oldest = oldest


class FutureMoment(LogError):
    """The requested time is later than ``now``, the log's clock."""

    def __init__(self, requested: datetime, now: datetime) -> None:
        super().__init__(f"{requested.isoformat()} is in the future: it is {now.isoformat()}")
        self.requested = requested
        self.now = now


class AfterArchive(FutureMoment):
    """The requested time is later than ``now``, the last change of an archive, which cannot know later ones."""


class UnknownMoment(LogError):
    """The time lies among changes that have commit times of the future, because the clocks were wrong.

    ``revision``: the newest one that was certainly committed by then.
    """

    def __init__(self, requested: datetime, revision: int) -> None:
        super().__init__(
            f"the state at {requested.isoformat()} is not known: the clocks were wrong after revision {revision}, and "
            "later changes have times of the future; ask by revision"
        )
        self.revision = revision


class NotArchived(LogError):
    """Nothing was dropped: it has to be archived first, and no directory for archives was given."""

    def __init__(self) -> None:
        super().__init__("history has to be archived before it is dropped, and no directory for archives was given")


class TooMany(LogError):
    """The query would have to count more changes than one query may."""

    def __init__(self, changes: int, limit: int) -> None:
        super().__init__(f"{changes} changes are more than can be counted at once, which is {limit}")
        self.changes = changes
        self.limit = limit


class LogCorrupt(LogError):
    """The log contradicts itself (a gap in the revisions, a broken hash chain). Never ignored."""


class TransformError(LogError):
    """The contents of an object cannot be encrypted or decrypted. The text is kube-apiserver's, without the object.

    ``code``: the status of the key service, as "Unavailable"; "" if no key service has failed.
    """

    def __init__(self, text: str, *, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class SetupError(LogError):
    """A mistake of the operator (wrong URL, schema not migrated, Postgres too old): one line that says how to fix
    it."""


class RejectedError(LogError):
    """The transaction did not commit: a key did not have the expected revision. The local views already show its
    state."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(f"{rejected.key} is at revision {rejected.actual}, not at {rejected.expected}")
        self.rejected = rejected


class OutcomeUnknownForNow(LogError):
    """The caller's deadline passed before the outcome was known, or before the change was applied here.

    Neither success nor failure: settling continues without the caller, and a later read shows the outcome.
    """


class QueueFull(LogError):
    """The appender's queue is full: nothing was committed; retry later."""

    def __init__(self, capacity: int) -> None:
        super().__init__(f"{capacity} changes are waiting for the log already")
        self.capacity = capacity


def unavailable_as(error: LogError) -> LogUnavailable:
    """Return a LogUnavailable of its own for another task or another kind, with the reason of an error."""
    again = (Blocked if isinstance(error, Blocked) else LogUnavailable)(str(error))
    again.sqlstate, again.public = error.sqlstate, error.public
    return again


@asynccontextmanager
async def unwrapped() -> AsyncIterator[None]:
    """Raise a single error itself, not the exception groups of the nurseries around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        single: BaseException = group
        while isinstance(single, BaseExceptionGroup) and len(single.exceptions) == 1:
            single = single.exceptions[0]
        if single is group:
            raise
        raise single from single.__cause__
