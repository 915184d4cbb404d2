"""The recent events of one resource: one list shared by all of its watchers, bounded by count, by bytes and by age.

No waiting and no log here. A watcher holds a revision, not a place in the list, so old events may go at any time:

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
"""Per resource, of object JSON: large objects (a ConfigMap may have 1 MiB) scroll out before they fill the memory. The
forms encoded for watchers (``Event.cache``) come on top: as much again for each representation that is watched."""

EVENT_OVERHEAD = 1024
"""Bytes charged to each event beside its JSON: the records, labels and fields around it."""

RECENT_AGE = timedelta(minutes=5)
"""Who comes back later reads the log. Without it the memory of a cluster where nothing happens but heartbeats grows for
hours, until the other bounds hold it."""

SLACK = 16
"""Old events go in lots of 1/SLACK of the bound, so that the list is moved once per lot and not once per event."""

_NEVER = datetime.max.replace(tzinfo=UTC)


class Window:
    """See the head of this file."""

    __slots__ = ("_ageing", "_bytes", "_revisions", "events", "held_since")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.held_since = 0
        self._revisions: list[int] = []
        self._bytes = 0
        self._ageing = _NEVER  # when there is a lot to go for its age

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, event: Event) -> None:
        if event.committed_at > self._ageing:
            self._forget_before(event.committed_at - RECENT_AGE)
        if not self.events:
            self._ageing = event.committed_at + RECENT_AGE + RECENT_AGE / SLACK
        self.events.append(event)
        self._revisions.append(event.revision)
        self._bytes += _cost(event)
        if len(self.events) > RECENT_EVENTS or self._bytes > RECENT_BYTES:
            self._trim()

    def after(self, revision: int) -> int:
        """Index of the first event with a revision above this one."""
        revisions = self._revisions
        if not revisions or revisions[-1] <= revision:  # the common case of a watcher that keeps up
            return len(revisions)
        return bisect_right(revisions, revision)

    def forget(self, revision: int) -> None:
        """Drop what happened up to the revision."""
        if revision > self.held_since:
            self._drop(self.after(revision))
            self.held_since = revision

    def reset(self, revision: int) -> None:
        """Drop everything: history in memory begins at the revision."""
        self._drop(len(self.events))
        self.held_since = revision

    def past(self, revision: int) -> dict[tuple[str, str], Entry | None]:
        """What to undo to get from now to the revision (at or above ``held_since``): for every key changed since, the
        entry it had then (None: absent)."""
        then: dict[tuple[str, str], Entry | None] = {}
        for event in self.events[self.after(revision) :]:
            _, namespace, name = event.entry.key
            then.setdefault((namespace, name), event.previous)
        return then

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
            self._ageing = self.events[0].committed_at + RECENT_AGE + RECENT_AGE / SLACK


def _cost(event: Event) -> int:
    return len(event.entry.json) + EVENT_OVERHEAD
