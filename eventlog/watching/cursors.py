"""WatchCursor: one watcher's place in the history of a resource.

No queue and no task: a cursor is a revision and a scope. It takes what follows from the shared recent events, from the
log where those have scrolled out, and sleeps when there is nothing (waking.py). A slow client costs nothing but the
distance it has to read. One whose reader can take events at any time sleeps on while they are delivered (delivery.py).

    memory holds 40..90, applied 95       cursor at 12: log 13..40 in chunks; then memory 41..90; then revision = 95

Invariant: every event in scope with revision <= ``revision`` has been delivered, once, in order; none above has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import ERASED, Event
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Operation, Record
from kubechronicle.eventlog.watching.dispatcher import SHARED, Batch, Shared
from kubechronicle.eventlog.watching.watcher_groups import EVERYTHING, Interest

if TYPE_CHECKING:
    from kubechronicle.eventlog.views.views import View, Views

CURSOR_BATCH = 500
"""Events handed out at once: bounds what a watcher encodes before it writes to its connection."""

HISTORY_CHUNK = 500
"""Records read from the log at once: usually a few megabytes, and a query of milliseconds."""


Take: TypeAlias = "Callable[[Batch], bool]"
"""Takes events that follow those handed out before. Whole or not at all; False: not now."""


class ReadHistory(Protocol):
    """``RevisionLog.read_resource``."""

    async def __call__(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> list[tuple[Record, Record | None]]: ...


HISTORY_RANGE = 200_000
"""Revisions looked through at once: where few of them are in scope, such as in a small namespace, it takes 0.1 s."""


class Cursor(Protocol):
    """What a watch reads from; see WatchCursor."""

    @property
    def revision(self) -> int: ...

    async def next_batch(self, deadline: float | None = None) -> list[Event]: ...

    def end(self) -> None: ...


class WatchCursor:
    """Made by ``Views.watch``. One task uses it at a time; there is nothing to close."""

    __slots__ = (
        "_asleep",
        "_ended",
        "_field",
        "_name",
        "_namespace",
        "_revision",
        "_scope",
        "_take",
        "_view",
        "_views",
        "interest",
    )

    def __init__(
        self, view: View, views: Views, *, after: int, namespace: str, name: str, field: tuple[str, str] | None
    ) -> None:
        self.interest: Interest = _interest(namespace, name, field)
        self._view = view
        self._views = views
        self._revision = after
        self._namespace = namespace
        self._name = name
        self._field = field
        self._scope = (namespace, name, field) if namespace or name or field else None
        self._asleep = False
        self._ended = False
        self._take: Take | None = None

    @property
    def revision(self) -> int:
        """Everything in scope up to and including this revision has been delivered (for bookmarks)."""
        if not self._asleep:
            return self._revision
        quiet_until = self._view.waiting.quiet_until(self)
        return max(self._revision, self._view.applied if quiet_until is None else quiet_until)

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """The next events of this scope, at least one, at most CURSOR_BATCH; [] when ``deadline`` (trio's clock) comes
        first. Yields to other tasks only where it has to wait: events at hand are handed out at once.

        Raises Compacted if the history that follows ``revision`` is gone, LogUnavailable if it cannot be read now (the
        cursor may be asked again). Cancelled, it loses and repeats nothing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
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
                await trio.lowlevel.checkpoint()  # whoever asks again and again must not keep all others from running
                return []
            if self._revision >= self._view.applied:
                with trio.move_on_at(math.inf if deadline is None else deadline) as waited:
                    await self._sleep()
                if waited.cancelled_caught:
                    return []

    def deliver_to(self, take: Take) -> None:
        """While ``next_batch`` waits, events may be given to ``take`` instead: they count as handed out if it takes
        them. It is called by another task, must not wait, and what it raises is as if it had not taken them."""
        self._take = take

    def end(self) -> None:
        """From now on ``next_batch`` answers [] where it would wait, and does so at once if it waits now."""
        self._ended = True
        self._view.waiting.wake_one(self, self._view.applied)

    def concerns(self, event: Event) -> bool:
        """Whether the event is in this cursor's scope."""
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
            return event.entry.labels is ERASED
        # What was erased may have had that value, and then the watcher has to learn that it is over.
        erased = event.entry.labels is ERASED or previous.labels is ERASED
        return erased or previous.fields.get(path, "") == value

    def _collect(self) -> list[Event]:
        """Events from memory; moves ``_revision`` over what was looked at."""
        found = self._following()
        self._revision = found.until
        return found

    def _following(self) -> Batch:
        """Events from memory that follow ``_revision``."""
        events, start = self._view.window.events, self._view.window.after(self._revision)
        if self._scope is None:
            found = events[start : start + CURSOR_BATCH]
        else:
            found = []
            for index in range(start, len(events)):
                if self.concerns(events[index]):
                    found.append(events[index])
                    if len(found) == CURSOR_BATCH:
                        break
        if len(found) == CURSOR_BATCH:
            return Batch(found, found[-1].revision)
        return Batch(found, max(self._revision, self._view.applied))

    async def _read_history(self) -> list[Event]:
        """A chunk from the log; moves ``_revision`` over it."""
        found, self._revision = await read_events(
            self._views,
            self._view.resource,
            after=self._revision,
            until=self._view.held_since,
            namespace=self._namespace,
            name=self._name,
        )
        return [event for event in found if self.concerns(event)]

    async def _sleep(self) -> None:
        self._asleep = True
        if self._take is None:
            await self._view.waiting.park(self)
        else:
            await self._view.waiting.park_served(self)

    # Called by Waiting and Pump

    def wake(self, revision: int) -> None:
        self._revision = max(self._revision, revision)
        self._asleep = False

    def interrupt(self, quiet_until: int | None) -> None:
        self.wake(self._view.applied if quiet_until is None else quiet_until)

    def deliver(self, revision: int, shared: Shared) -> bool:
        before = self._revision = max(self._revision, revision)
        view = self._view
        if before < view.window.held_since or self._take is None:
            return False
        place = (before, view.applied, self._scope)
        batch = shared.get(place)
        if batch is None:
            if len(shared) >= SHARED:
                shared.clear()
            batch = shared[place] = self._following()
        self._revision = batch.until
        if not batch:
            return True
        try:
            if self._take(batch):
                return True
        except Exception:  # the cursor's own task meets it again, and answers for it
            pass
        self._revision = before
        return False


async def read_events(
    views: Views, resource: str, *, after: int, until: int, namespace: str, name: str
) -> tuple[list[Event], int]:
    """The next chunk of events from the log, perhaps none, and the revision up to which they are all. Compacted,
    LogUnavailable.

    A change whose contents were erased is left out, as there is nothing to tell; but for a deletion, which tells what
    is left: so whoever has held the object drops it."""
    read = views.read_history
    if read is None:
        raise LogUnavailable("the views are not connected to a log yet")
    until = min(until, after + HISTORY_RANGE)
    rows = await read(resource, after=after, until=until, limit=HISTORY_CHUNK, namespace=namespace, name=name)
    describe = views.describe_record
    found = [
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
    return found, rows[-1][0].revision if len(rows) >= HISTORY_CHUNK else until


def _interest(namespace: str, name: str, field: tuple[str, str] | None) -> Interest:
    """What to sleep under: a name is more selective than a field's value, and that than a namespace."""
    if name:
        return ("name", namespace, name)
    if field is not None and field[1]:
        return ("field", *field)
    return ("namespace", namespace) if namespace else EVERYTHING
