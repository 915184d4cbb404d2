"""One view: the objects of one resource as of the applied revision, and its recent events.

No I/O here. Not here: all views together, and the order in which they change (views.py).

Invariant: the events above ``held_since`` lead from the state at that revision to the present state:

    applied 7   pods: a@3 b@7    held_since 4, events: 5 DELETE c, 6 CREATE b, 7 UPDATE b
    snapshot(4): undo 5..7       a@3 c@2
    snapshot(3): None            ask the log
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import trio
from msgspec import structs

from kubechronicle.eventlog.entries import NOTHING, UNREADABLE, Describe, Entry, Event, entry_of
from kubechronicle.eventlog.errors import Diverged, LogCorrupt
from kubechronicle.eventlog.records import Operation, Record
from kubechronicle.eventlog.views.dispatcher import Dispatcher, WatcherGroups
from kubechronicle.eventlog.views.sorted_store import FieldIndex, SortedStore, merge

# -- progress ----------------------------------------------------------------------------------------------------------
#
# Progress: the applied revision, and the tasks that wait until it reaches theirs.


class ViewProgress:
    """``applied``: everything up to this revision is in the views. ``restarts``: how often it went back."""

    __slots__ = ("_waiting", "applied", "restarts")

    def __init__(self) -> None:
        self.applied = 0
        self.restarts = 0
        self._waiting: dict[int, trio.lowlevel.ParkingLot] = {}

    def advance(self, revision: int) -> None:
        self.applied = revision
        for reached in [awaited for awaited in self._waiting if awaited <= revision]:
            self._waiting.pop(reached).unpark_all()

    def restart(self, revision: int) -> None:
        """Begin anew at the revision, which may be lower. Tasks that wait for a revision get Diverged."""
        self.restarts += 1
        self.applied = revision
        waiting, self._waiting = self._waiting, {}
        for tasks in waiting.values():
            tasks.unpark_all()

    async def wait(self, revision: int) -> None:
        """Return when everything up to the revision is applied. Diverged: the log went back meanwhile."""
        restarts = self.restarts
        while self.applied < revision:
            tasks = self._waiting.get(revision)
            if tasks is None:
                tasks = self._waiting[revision] = trio.lowlevel.ParkingLot()
            try:
                await tasks.park()
            finally:
                if not tasks and self._waiting.get(revision) is tasks:
                    del self._waiting[revision]
            if self.restarts != restarts:  # even if a revision of this number exists: it is another one
                raise Diverged(revision, self.applied)


# -- window ------------------------------------------------------------------------------------------------------------
#
# The recent events of one resource: one list shared by all of its watchers, bounded by count, by bytes and by age.
#
# No waiting and no log here. A watcher holds a revision, not an index of the list, so old events may be dropped
# at any time:
#
#     events of revisions  11 14 15 19      held_since 9: all later changes of the resource are here
#     a cursor at 14 continues with 15; at 10 with 11; at 9 with 11; at 7 it must read the log
#
# Invariant: ``events`` is in revision order and holds every change of the resource with revision > ``held_since``.

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


# -- view --------------------------------------------------------------------------------------------------------------

SNAPSHOTS_KEPT = 4
"""Past states cached per view: the pages of one LIST read the same revision again and again. A snapshot holds pointers
only; its entries are held by the recent events anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatistics:
    """Numbers about one view. ``events`` and ``event_bytes``: of the recent events in memory."""

    objects: int
    events: int
    event_bytes: int
    held_since: int
    waiting_watchers: int


Follow = Callable[[Sequence[Event] | None], None]
"""Called in the step that changes a view, with the events of the change; None: the whole state was replaced."""


class View:
    """One resource at the applied revision. See the head of this file.

    ``unreadable``: the (namespace, name) of objects whose contents cannot be decrypted. Their entries lack labels and
    fields, so no selection may be answered from the view without them (rereading.py).
    """

    __slots__ = (
        "_by_field",
        "_describe",
        "_progress",
        "_snapshots",
        "_store",
        "followers",
        "resource",
        "unreadable",
        "watchers",
        "window",
    )

    def __init__(self, resource: str, *, describe: Describe, progress: ViewProgress, dispatcher: Dispatcher) -> None:
        self.resource = resource
        self.window = Window()
        self.watchers = WatcherGroups(dispatcher)
        self.followers: list[Follow] = []
        self.unreadable: set[tuple[str, str]] = set()
        self._describe = describe
        self._progress = progress
        self._store = SortedStore()
        self._snapshots: dict[int, tuple[Entry, ...]] = {}
        self._by_field: dict[str, FieldIndex] = {}  # built when first queried

    # Reading

    @property
    def applied(self) -> int:
        return self._progress.applied

    @property
    def held_since(self) -> int:
        """The revision to which history in memory reaches back."""
        return self.window.held_since

    @property
    def events(self) -> Sequence[Event]:
        """Recent events in revision order: all those above ``held_since``. Shared; do not change the list."""
        return self.window.events

    def get(self, namespace: str, name: str) -> Entry | None:
        return self._store.get(namespace, name)

    def entries(self, namespace: str = "") -> Sequence[Entry]:
        """Return the entries of a namespace, or of all, ordered by (namespace, name) bytewise. Later changes of the
        view do not change the result."""
        return self._store.all(namespace) if self._store.count else ()

    def page(self, namespace: str, after: tuple[str, str] | None, limit: int) -> Sequence[Entry]:
        """Return at most ``limit`` entries of a namespace (or of all) that follow the key ``after``."""
        return self._store.page(namespace, after, limit)

    def with_field(self, field: str, value: str) -> Sequence[Entry]:
        """Return the entries of all namespaces with this value (not empty) of a selectable field, in order.

        The first query of a field builds an index: after a restart, thousands of nodes at once query their own few of
        very many pods.
        """
        index = self._by_field.get(field)
        if index is None:
            index = self._by_field[field] = FieldIndex(field)
            for entry in self.entries():
                index.put(entry)
        return index.entries(value)

    def count(self, namespace: str = "") -> int:
        return self._store.size(namespace)

    def snapshot(self, revision: int) -> Sequence[Entry] | None:
        """Return all entries as of the revision, in order; None if memory does not reach back that far (query the log).
        The revision must not be above ``applied``."""
        if revision < self.held_since or self.unreadable:
            return None
        if self.unchanged_since(revision):
            return self.entries()
        snapshot = self._snapshots.get(revision)
        if snapshot is None:
            snapshot = merge(self.entries(), self.window.undo_to(revision))
            while len(self._snapshots) >= SNAPSHOTS_KEPT:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[revision] = snapshot
        return snapshot

    def unchanged_since(self, revision: int) -> bool:
        """Return whether the view has not changed since the revision, which must not be below ``held_since``."""
        return self.window.after(revision) == len(self.window.events)

    @property
    def bytes(self) -> int:
        """The bytes of the objects' JSON."""
        return self._store.bytes

    def statistics(self) -> ViewStatistics:
        return ViewStatistics(
            objects=self.count(),
            events=len(self.window.events),
            event_bytes=self.window.bytes,
            held_since=self.held_since,
            waiting_watchers=len(self.watchers),
        )

    def describe_again(self) -> None:
        """Compute the labels and fields of all entries and recent events anew, when their rules have changed."""
        again: dict[int, Entry] = {}

        def described(entry: Entry) -> Entry:
            new = entry if entry.withheld else again.get(id(entry))
            if new is None:
                labels, fields = self._describe(self.resource, entry.object())
                new = again[id(entry)] = structs.replace(entry, labels=labels or NOTHING, fields=fields or NOTHING)
            return new

        self._store = SortedStore([described(entry) for entry in self._store.all()] if self._store.count else ())
        self._snapshots.clear()
        self._by_field.clear()
        for position, event in enumerate(self.window.events):
            if not event.entry.withheld:
                previous = event.previous
                if previous is not None:
                    previous = described(previous)
                self.window.events[position] = structs.replace(event, entry=described(event.entry), previous=previous)

    # Writing: Views only

    def apply(self, record: Record) -> Event:
        """Apply one record. LogCorrupt if it does not follow from the state."""
        _, namespace, name = record.key
        previous = self._store.get(namespace, name)
        if (previous.revision if previous is not None else 0) != record.previous_revision:
            raise LogCorrupt(
                f"revision {record.revision} says that {record.key} was last changed at {record.previous_revision}, "
                f"but it was at {previous.revision if previous is not None else 0}"
            )
        entry = entry_of(record, self._describe)
        if record.operation is not Operation.DELETE:
            self._store.put(entry)
        elif previous is not None:
            self._store.remove(namespace, name)
        for index in self._by_field.values():
            if previous is not None:
                index.remove(previous)
            if record.operation is not Operation.DELETE:
                index.put(entry)
        event = Event(record.revision, record.operation, entry, previous, record.committed_at)
        self.window.add(event)
        if self.unreadable or entry.labels is UNREADABLE:
            self._note_readability(entry, record.operation)
        return event

    def _note_readability(self, entry: Entry, operation: Operation) -> None:
        _, namespace, name = entry.key
        if entry.labels is UNREADABLE and operation is not Operation.DELETE:
            self.unreadable.add((namespace, name))
        elif (namespace, name) in self.unreadable:
            self.unreadable.discard((namespace, name))
            self.window.forget(entry.revision - 1)  # snapshots are made of readable states alone

    def put_readable(self, old: Entry, new: Entry) -> bool:
        """Replace an unreadable entry by the same one with contents. False: the object has changed meanwhile."""
        _, namespace, name = old.key
        if self._store.get(namespace, name) is not old:
            return False
        self._store.put(new)
        self.unreadable.discard((namespace, name))
        self._by_field.clear()
        self._snapshots.clear()
        self.window.forget(self.applied)  # the event with the unreadable entry, too, is read from the log from now on
        return True

    def replace(self, entries: list[Entry], revision: int) -> None:
        self._store = SortedStore(entries)
        self.unreadable = {(entry.key.namespace, entry.key.name) for entry in entries if entry.labels is UNREADABLE}
        self._snapshots.clear()
        self._by_field.clear()
        self.window.reset(revision)

    def forget(self, revision: int) -> None:
        self.window.forget(min(revision, self.applied))
        for old in [held for held in self._snapshots if held < self.held_since]:
            del self._snapshots[old]
