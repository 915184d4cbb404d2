"""WatchCursor: one watcher's position in the history of a resource.

No queue and no task: a cursor is a revision and a scope. It reads the shared recent events, or the log where those have
scrolled out, and waits when there are none (dispatcher.py). A slow client costs only the distance it has to read. A
cursor whose reader can take events at any time keeps waiting while the dispatcher delivers them (dispatcher.py).

    memory holds 40..90, applied 95       cursor at 12: log 13..40 in chunks; then memory 41..90; then revision = 95

Invariant: every event in scope with revision <= ``revision`` has been returned or delivered, once, in order; no later
event has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.queries.changes import Chunk
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.views.dispatcher import (
    EVERYTHING,
    MAX_SHARED_BATCHES,
    EventBatch,
    Interest,
    SharedBatches,
    WatcherGroups,
)

# -- sources -----------------------------------------------------------------------------------------------------------
#
# The parts of the views and of the log that a cursor reads. The views above this folder satisfy these protocols.


class ReadHistory(Protocol):
    """``RevisionLog.read_resource``."""

    async def __call__(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[tuple[Record, Record | None]]: ...


class ReadObject(Protocol):
    """``RevisionLog.get_at``."""

    async def __call__(self, key: Key, *, revision: int) -> Record | None: ...


class RecentEvents(Protocol):
    """The events of one resource in memory, in revision order: all those above ``held_since`` (views/view.py)."""

    @property
    def events(self) -> list[Event]: ...

    @property
    def held_since(self) -> int: ...

    def after(self, revision: int) -> int:
        """Return the index of the first event above the revision."""
        ...


class WatchedView(Protocol):
    """The view of one resource."""

    @property
    def resource(self) -> str: ...

    @property
    def applied(self) -> int: ...

    @property
    def held_since(self) -> int: ...

    @property
    def window(self) -> RecentEvents: ...

    @property
    def watchers(self) -> WatcherGroups: ...


class HistorySource(Protocol):
    """``read_history``: None until the views are connected to a log. ``erasures``: erasures seen so far. ``restarts``:
    how often the log went back."""

    @property
    def read_history(self) -> ReadHistory | None: ...

    @property
    def erasures(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    def describe_record(self, record: Record) -> Entry: ...


CURSOR_BATCH = 500
"""Events returned at once: bounds the bytes that a watcher encodes before it writes to its connection."""

HISTORY_CHUNK = 500
"""Records read from the log at once, or CHUNK_BYTES of them: a query of milliseconds."""

HISTORY_RANGE = 200_000
"""Revisions searched at once. Where few of them are in scope, such as in a small namespace, a search takes 0.1 s."""

Take: TypeAlias = "Callable[[EventBatch], bool]"
"""Takes the batch that follows the events returned before, whole or not at all. False: it cannot take it now."""


class Cursor(Protocol):
    """The source of a watch: a WatchCursor or a Replay."""

    @property
    def revision(self) -> int: ...

    async def next_batch(self, deadline: float | None = None) -> list[Event]: ...

    def end(self) -> None: ...


class WatchCursor:
    """Made by ``Views.watch``. One task uses it at a time; there is nothing to close."""

    __slots__ = (
        "_ended",
        "_field",
        "_name",
        "_namespace",
        "_restarts",
        "_revision",
        "_scope",
        "_take",
        "_view",
        "_views",
        "_waiting",
        "interest",
    )

    def __init__(
        self,
        view: WatchedView,
        views: HistorySource,
        *,
        after: int,
        namespace: str,
        name: str,
        field: tuple[str, str] | None,
    ) -> None:
        self.interest: Interest = _interest(namespace, name, field)
        self._view = view
        self._views = views
        self._revision = after
        self._restarts = views.restarts
        self._namespace = namespace
        self._name = name
        self._field = field
        self._scope = (namespace, name, field) if namespace or name or field else None
        self._waiting = False
        self._ended = False
        self._take: Take | None = None

    @property
    def revision(self) -> int:
        """Every event in scope up to and including this revision has been returned or delivered (for bookmarks)."""
        if not self._waiting:
            return self._revision
        delivered_until = self._view.watchers.delivered_until(self)
        return max(self._revision, self._view.applied if delivered_until is None else delivered_until)

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events of this scope, 1 to CURSOR_BATCH; [] at the ``deadline`` (Trio's clock).

        Yields to other tasks only if it has to wait; events in memory are returned at once. Raises Compacted if the
        history that follows ``revision`` is gone, or the log went back, and LogUnavailable if it cannot be read now
        (the caller may retry). Cancelling it neither loses nor repeats events.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._restarts != self._views.restarts:
                raise Compacted(self._revision, max(self._revision, self._view.applied))
            if self._revision < self._view.held_since:
                with trio.move_on_at(math.inf if deadline is None else deadline) as waited:
                    events = await self._read_history()
                if waited.cancelled_caught:
                    return []
            else:
                events = self._collect()
            if events:
                return events
            if self._ended:
                await trio.lowlevel.checkpoint()  # a caller that loops must not keep other tasks from running
                return []
            if self._revision >= self._view.applied:
                with trio.move_on_at(math.inf if deadline is None else deadline) as waited:
                    await self._wait()
                if waited.cancelled_caught:
                    return []

    def deliver_to(self, take: Take) -> None:
        """Let events be passed to ``take`` while ``next_batch`` waits; events that it takes count as returned.

        The dispatcher's task calls ``take``, which must not wait. An exception counts as False.
        """
        self._take = take

    def end(self) -> None:
        """Let ``next_batch`` return [] from now on where it would wait; end a wait that is under way."""
        self._ended = True
        self._view.watchers.wake_one(self, self._view.applied)

    def concerns(self, event: Event) -> bool:
        """Return whether the event is in this cursor's scope."""
        _, namespace, name = event.entry.key
        if (self._name and name != self._name) or (self._namespace and namespace != self._namespace):
            return False
        if self._field is None:
            return True
        path, value = self._field
        previous = event.previous
        if event.entry.fields.get(path, "") == value:
            return True
        if previous is None:
            return event.entry.withheld
        # The object may have had that value; then the watcher must learn that it has left the scope, or cannot be read.
        withheld = event.entry.withheld or previous.withheld
        return withheld or previous.fields.get(path, "") == value

    def _collect(self) -> list[Event]:
        """Return the next events in memory, and move ``_revision`` past them."""
        batch = self._next_in_memory()
        self._revision = batch.until
        return batch

    def _next_in_memory(self) -> EventBatch:
        """Return the events in memory that follow ``_revision``."""
        events, start = self._view.window.events, self._view.window.after(self._revision)
        if self._scope is None:
            matching = events[start : start + CURSOR_BATCH]
        else:
            matching = []
            for index in range(start, len(events)):
                if self.concerns(events[index]):
                    matching.append(events[index])
                    if len(matching) == CURSOR_BATCH:
                        break
        if len(matching) == CURSOR_BATCH:
            return EventBatch(matching, matching[-1].revision)
        return EventBatch(matching, max(self._revision, self._view.applied))

    async def _read_history(self) -> list[Event]:
        """Return the events of a chunk of the log, and move ``_revision`` past it."""
        events, self._revision = await read_events(
            self._views,
            self._view.resource,
            after=self._revision,
            until=self._view.held_since,
            namespace=self._namespace,
            name=self._name,
        )
        return [event for event in events if self.concerns(event)]

    async def _wait(self) -> None:
        self._waiting = True
        if self._take is None:
            await self._view.watchers.wait(self)
        else:
            await self._view.watchers.wait_with_delivery(self)

    # Called by WatcherGroups and Dispatcher

    def wake(self, revision: int) -> None:
        self._revision = max(self._revision, revision)
        self._waiting = False

    def interrupt(self, delivered_until: int | None) -> None:
        self.wake(self._view.applied if delivered_until is None else delivered_until)

    def deliver(self, revision: int, shared: SharedBatches) -> bool:
        before = self._revision
        if before < revision:
            before = self._revision = revision
        view, take = self._view, self._take
        if take is None or before < view.window.held_since or self._restarts != self._views.restarts:
            return False
        position = (before, view.applied, self._scope)
        batch = shared.get(position)
        if batch is None:
            if len(shared) >= MAX_SHARED_BATCHES:
                shared.clear()
            batch = shared[position] = self._next_in_memory()
        self._revision = batch.until
        if not batch:
            return True
        try:
            if take(batch):
                return True
        except Exception:  # the watcher's own task takes the same batch, meets the error again, and handles it
            pass
        self._revision = before
        return False


async def read_events(
    views: HistorySource, resource: str, *, after: int, until: int, namespace: str, name: str
) -> tuple[list[Event], int]:
    """Read the next chunk of events from the log. Compacted, LogUnavailable.

    Returns the events, perhaps none, and the revision up to which they are complete. A change whose contents were
    erased is left out. A deletion is kept, with the rest of its object, so that a client that holds the object drops
    it.
    """
    read = views.read_history
    if read is None:
        raise LogUnavailable("the views are not connected to a log yet")
    until = min(until, after + HISTORY_RANGE)
    rows = await read(resource, after=after, until=until, limit=HISTORY_CHUNK, namespace=namespace, name=name)
    describe = views.describe_record
    events = [
        Event(
            record.revision,
            record.operation,
            describe(record),
            describe(previous) if previous is not None else None,
            record.committed_at,
        )
        for record, previous in rows
        if record.operation is Operation.DELETE or not record.erased
    ]
    return events, max(until, rows.until) if rows.is_last(HISTORY_CHUNK) else rows[-1][0].revision


def _interest(namespace: str, name: str, field: tuple[str, str] | None) -> Interest:
    """Return the most selective property of the scope: the name, then a field's value, then the namespace."""
    if name:
        return ("name", namespace, name)
    if field is not None and field[1]:
        return ("field", *field)
    return ("namespace", namespace) if namespace else EVERYTHING
