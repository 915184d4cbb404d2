"""The recent events of one resource: one list shared by all of its watchers, bounded by count, by bytes and by age.

No waiting and no log here. A watcher holds a revision, not an index of the list, so old events may be dropped
at any time:

    events of revisions  11 14 15 19      held_since 9: all later changes of the resource are here
    a cursor at 14 continues with 15; at 10 with 11; at 9 with 11; at 7 it must read the log

Invariant: ``events`` is in revision order and holds every change of the resource with revision > ``held_since``.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from kubechronicle.eventlog.entries import Entry, Event

RECENT_EVENTS = 10_000
"""Per resource. A client that lists 10,000 objects in pages, or reconnects after a minute at 150 changes per second,
continues from memory."""

RECENT_BYTES = 32 * 1024 * 1024
"""Per resource, of object JSON: large objects (a ConfigMap may have 1 MiB) are dropped before they fill the memory. The
encodings for watchers (``Event.cache``) come on top: as much again for each watched representation."""

EVENT_OVERHEAD = 1024
"""Bytes added for each event to those of its JSON: its structs, labels and fields."""

RECENT_AGE = timedelta(minutes=5)
"""Watchers that return later read the log. Without this bound, memory grows for hours in a cluster with nothing but
heartbeats, until the other bounds apply."""

SLACK = 16
"""Old events are dropped in chunks of 1/SLACK of the bound, so that the list moves once per chunk, not per event."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class Window:
    """See the head of this file. ``added``: the number of events so far."""

    __slots__ = ("_bytes", "_expiry", "_revisions", "added", "events", "held_since")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.held_since = 0
        self.added = 0
        self._revisions: list[int] = []
        self._bytes = 0
        self._expiry = _NEVER  # commit time after which a chunk of events is too old

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, event: Event) -> None:
        if event.committed_at > self._expiry:
            self._forget_before(event.committed_at - RECENT_AGE)
        if not self.events:
            self._expiry = event.committed_at + RECENT_AGE + RECENT_AGE / SLACK
        self.events.append(event)
        self.added += 1
        self._revisions.append(event.revision)
        self._bytes += _cost(event)
        if len(self.events) > RECENT_EVENTS or self._bytes > RECENT_BYTES:
            self._trim()

    def after(self, revision: int) -> int:
        """Return the index of the first event above the revision."""
        revisions = self._revisions
        if not revisions or revisions[-1] <= revision:  # the common case of a watcher that keeps up
            return len(revisions)
        return bisect_right(revisions, revision)

    def forget(self, revision: int) -> None:
        """Drop the events up to the revision."""
        if revision > self.held_since:
            self._drop(self.after(revision))
            self.held_since = revision

    def reset(self, revision: int) -> None:
        """Drop all events: history in memory begins at the revision."""
        self._drop(len(self.events))
        self.held_since = revision

    def undo_to(self, revision: int) -> dict[tuple[str, str], Entry | None]:
        """Return, for each key changed since the revision, the entry as of the revision (None: absent). The revision
        must be at or above ``held_since``."""
        past: dict[tuple[str, str], Entry | None] = {}
        for event in self.events[self.after(revision) :]:
            _, namespace, name = event.entry.key
            past.setdefault((namespace, name), event.previous)
        return past

    def _trim(self) -> None:
        keep_bytes = RECENT_BYTES - RECENT_BYTES // SLACK
        count, left = max(0, len(self.events) - RECENT_EVENTS), self._bytes
        count = count and count + RECENT_EVENTS // SLACK
        left -= sum(map(_cost, self.events[:count]))
        while self._bytes > RECENT_BYTES and left > keep_bytes:
            left -= _cost(self.events[count])
            count += 1
        self.forget(self._revisions[count - 1])

    def _forget_before(self, moment: datetime) -> None:
        count = bisect_right(self.events, moment, key=attrgetter("committed_at"))
        if count:
            self.forget(self._revisions[count - 1])

    def _drop(self, count: int) -> None:
        self._bytes -= sum(map(_cost, self.events[:count]))
        del self.events[:count]
        del self._revisions[:count]
        if self.events:
            self._expiry = self.events[0].committed_at + RECENT_AGE + RECENT_AGE / SLACK


def _cost(event: Event) -> int:
    return len(event.entry.json) + EVENT_OVERHEAD
