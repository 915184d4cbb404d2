"""Watcher groups: the waiting watch cursors of one view, grouped by interest.

No events and no views here. A waiting watcher is a parked Trio task and one dictionary item. It has no task of its own,
no timer, no channel. Its interest is the most selective property of its scope, so that a change costs in proportion to
the watchers it concerns:

    cursor                            interest
    all pods                          ("all",)
    pods of namespace a               ("namespace", "a")
    pod a/b                           ("name", "a", "b")
    pods named b                      ("name", "", "b")         also: cluster-scoped object b
    pods of node n                    ("field", "spec.nodeName", "n")

Invariant: a waiting watcher is in exactly one group, and no event of that interest happens while it waits. So the
events it has not seen begin with the one that wakes it, however long it waited and whichever events have scrolled out
meanwhile. Watchers that take deliveries (dispatcher.py) wait under the same interests, and continue to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.waking import WOKEN
from kubechronicle.eventlog.watching.dispatcher import DeliveryWatcher, Dispatcher, WatcherGroup

Interest: TypeAlias = tuple[str, ...]

EVERYTHING: Interest = ("all",)


class Watcher(Protocol):
    """A watch cursor that can wait in a group."""

    @property
    def interest(self) -> Interest: ...

    def wake(self, revision: int) -> None:
        """End the wait; no event up to and including the revision concerned this watcher."""
        ...

    def interrupt(self, delivered_until: int | None) -> None:
        """End the wait early (deadline, cancelled). Every event of interest up to the revision has been delivered
        (None: up to the applied revision). Called at that moment, not when the task runs: events applied in between
        must not count as delivered."""
        ...


class InterestedDeliveryWatcher(Watcher, DeliveryWatcher, Protocol):
    """A watcher in a group that takes deliveries."""


class WatcherGroups:
    """The waiting cursors of one view.

    ``_woken``: watchers to be woken by an event, by interest.
    ``_delivered``: watchers to which the dispatcher delivers, by interest.
    """

    __slots__ = ("_delivered", "_dispatcher", "_field_groups", "_woken")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._woken: dict[Interest, dict[Watcher, trio.lowlevel.Task]] = {}
        self._delivered: dict[Interest, WatcherGroup] = {}
        self._field_groups: dict[str, int] = {}  # groups by field name, so that an event looks up only these fields

    def __len__(self) -> int:
        return sum(map(len, self._woken.values())) + sum(len(group.waiting) for group in self._delivered.values())

    def concerned(self, namespace: str, name: str) -> int:
        """Return the number of waiting watchers that an event of this object concerns, except those by field."""
        interests = [EVERYTHING]
        if namespace:
            interests.append(("namespace", namespace))
        if name:
            interests += [("name", namespace, name), ("name", "", name)] if namespace else [("name", "", name)]
        count = 0
        for interest in interests:
            if interest in self._woken:
                count += len(self._woken[interest])
            if interest in self._delivered:
                count += len(self._delivered[interest].waiting)
        return count

    async def wait(self, watcher: Watcher) -> None:
        """Return when an event of the watcher's interest is applied. Cancelling leaves nothing behind."""
        interest = watcher.interest
        group = self._woken.get(interest)
        if group is None:
            group = self._woken[interest] = {}
            self._count_field(interest, 1)
        group[watcher] = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del group[watcher]
            watcher.interrupt(None)
            if not group:
                self._remove(interest)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def wait_with_delivery(self, watcher: InterestedDeliveryWatcher) -> None:
        """As ``wait``, but return only when an event cannot be delivered."""
        interest = watcher.interest
        group = self._delivered.get(interest)
        if group is None:
            group = self._delivered[interest] = WatcherGroup()
            self._count_field(interest, 1)
        group.waiting[watcher] = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del group.waiting[watcher]
            watcher.interrupt(group.delivered_until)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            if not group.waiting and self._delivered.get(interest) is group:
                del self._delivered[interest]
                self._count_field(interest, -1)

    def delivered_until(self, watcher: InterestedDeliveryWatcher) -> int | None:
        """Every event up to this revision has been delivered to the waiting watcher. None: every event there is."""
        group = self._delivered.get(watcher.interest)
        return group.delivered_until if group is not None and watcher in group.waiting else None

    def notify(self, events: Iterable[Event]) -> None:
        """Wake or serve the watchers that these events concern, each once, with its first event. The events are in
        order and already in the view."""
        for event in events:
            if not self._woken and not self._delivered:
                return
            for interest in self._interests(event):
                if interest in self._woken:
                    self._wake_group(interest, event.revision - 1)
                if interest in self._delivered:
                    self._dispatcher.enqueue(self._delivered[interest], event.revision - 1)

    def wake_all(self, revision: int) -> None:
        """Wake every watcher. No event up to the revision concerned them; later events are unknown."""
        for interest in list(self._woken):
            self._wake_group(interest, revision)
        for group in self._delivered.values():
            delivered_until = revision if group.delivered_until is None else group.delivered_until
            for watcher in list(group.waiting):
                group.wake(watcher, delivered_until)

    def wake_one(self, watcher: InterestedDeliveryWatcher, revision: int) -> None:
        """Wake this watcher if it waits; no event up to the revision concerned it."""
        woken = self._woken.get(watcher.interest, {})
        task = woken.pop(watcher, None)
        if task is not None:
            if not woken:
                self._remove(watcher.interest)
            watcher.wake(revision)
            trio.lowlevel.reschedule(task, WOKEN)
            return
        group = self._delivered.get(watcher.interest)
        if group is not None and watcher in group.waiting:
            group.wake(watcher, revision if group.delivered_until is None else group.delivered_until)

    def _wake_group(self, interest: Interest, revision: int) -> None:
        for watcher, task in self._remove(interest).items():
            watcher.wake(revision)
            trio.lowlevel.reschedule(task, WOKEN)

    def _remove(self, interest: Interest) -> dict[Watcher, trio.lowlevel.Task]:
        self._count_field(interest, -1)
        return self._woken.pop(interest)

    def _count_field(self, interest: Interest, groups: int) -> None:
        if interest[0] == "field":
            count = self._field_groups.get(interest[1], 0) + groups
            self._field_groups[interest[1]] = count
            if not count:
                del self._field_groups[interest[1]]

    def _interests(self, event: Event) -> Iterator[Interest]:
        _, namespace, name = event.entry.key
        yield EVERYTHING
        yield ("namespace", namespace)
        yield ("name", namespace, name)
        if namespace:
            yield ("name", "", name)
        for field in tuple(self._field_groups):
            value = event.entry.fields.get(field)
            if value:
                yield ("field", field, value)
            before = event.previous.fields.get(field) if event.previous else None
            if before and before != value:
                yield ("field", field, before)
