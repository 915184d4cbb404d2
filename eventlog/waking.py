"""Who sleeps on what: watch cursors by interest, and readers by the revision they wait for.

No events and no views here. A sleeper is a task parked with trio's scheduler and one dictionary item: it has no task of
its own, no timer, no channel. The index is by the most selective thing a cursor can be indexed by, so that a change
costs what the cursors it concerns cost, and nothing for the others:

    cursor                            sleeps under
    all pods                          ("all",)
    pods of namespace a               ("namespace", "a")
    pod a/b                           ("name", "a", "b")
    pods named b                      ("name", "", "b")         also: cluster-scoped object b
    pods of node n                    ("field", "spec.nodeName", "n")

Invariant: a sleeper lies under exactly one interest, and while it does nothing of that interest has happened. So what
it has not seen begins with the event that wakes it, however long it slept and whatever has scrolled out meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Event

Interest: TypeAlias = tuple[str, ...]

EVERYTHING: Interest = ("all",)


class Sleeper(Protocol):
    """What may sleep here: a watch cursor."""

    @property
    def interest(self) -> Interest: ...

    def wake(self, revision: int) -> None:
        """Sleep is over; everything up to and including the revision did not concern this sleeper."""
        ...

    def interrupt(self) -> None:
        """Sleep was cut short (deadline, cancelled). Called at that very moment, not when the task comes to run: what
        is applied in between must not count as having been slept through."""
        ...


class Waiting:
    """The sleeping cursors of one view."""

    __slots__ = ("_field_names", "_lots")

    def __init__(self) -> None:
        self._lots: dict[Interest, dict[Sleeper, trio.lowlevel.Task]] = {}
        self._field_names: dict[str, int] = {}  # how many lots there are for a field, so that events look up only those

    def __len__(self) -> int:
        return sum(map(len, self._lots.values()))

    async def park(self, sleeper: Sleeper) -> None:
        """Sleep until an event of the sleeper's interest is applied. Cancelling leaves nothing behind."""
        interest = sleeper.interest
        lot = self._lots.get(interest)
        if lot is None:
            lot = self._lots[interest] = {}
            if interest[0] == "field":
                self._field_names[interest[1]] = self._field_names.get(interest[1], 0) + 1
        lot[sleeper] = trio.lowlevel.current_task()

        def give_up(_: object) -> trio.lowlevel.Abort:
            del lot[sleeper]
            sleeper.interrupt()
            if not lot:
                self._remove(interest)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    def wake(self, events: Iterable[Event]) -> None:
        """Wake those whom these events (in order, already in the view) concern: each once, with its first event."""
        for event in events:
            if not self._lots:
                return
            for interest in self._interests(event):
                if interest in self._lots:
                    self._wake_lot(interest, event.revision - 1)

    def wake_all(self, revision: int) -> None:
        """Wake everyone; nothing up to the revision concerned them, and nobody knows about what came after."""
        for interest in list(self._lots):
            self._wake_lot(interest, revision)

    def wake_one(self, sleeper: Sleeper, revision: int) -> None:
        """Wake this one, if it sleeps; nothing up to the revision concerned it."""
        lot = self._lots.get(sleeper.interest, {})
        task = lot.pop(sleeper, None)
        if task is None:
            return
        if not lot:
            self._remove(sleeper.interest)
        sleeper.wake(revision)
        trio.lowlevel.reschedule(task)

    def _wake_lot(self, interest: Interest, revision: int) -> None:
        for sleeper, task in self._remove(interest).items():
            sleeper.wake(revision)
            trio.lowlevel.reschedule(task)

    def _remove(self, interest: Interest) -> dict[Sleeper, trio.lowlevel.Task]:
        if interest[0] == "field":
            self._field_names[interest[1]] -= 1
            if not self._field_names[interest[1]]:
                del self._field_names[interest[1]]
        return self._lots.pop(interest)

    def _interests(self, event: Event) -> Iterator[Interest]:
        _, namespace, name = event.entry.key
        yield EVERYTHING
        yield ("namespace", namespace)
        yield ("name", namespace, name)
        if namespace:
            yield ("name", "", name)
        for field in tuple(self._field_names):
            value = event.entry.fields.get(field)
            if value:
                yield ("field", field, value)
            before = event.previous.fields.get(field) if event.previous else None
            if before and before != value:
                yield ("field", field, before)


class Progress:
    """The applied revision, and who waits for it to reach theirs."""

    __slots__ = ("_waiting", "applied")

    def __init__(self) -> None:
        self.applied = 0
        self._waiting: dict[int, trio.lowlevel.ParkingLot] = {}

    def advance(self, revision: int) -> None:
        self.applied = revision
        for reached in [awaited for awaited in self._waiting if awaited <= revision]:
            self._waiting.pop(reached).unpark_all()

    async def wait(self, revision: int) -> None:
        """Until everything up to the revision is applied."""
        while self.applied < revision:
            lot = self._waiting.get(revision)
            if lot is None:
                lot = self._waiting[revision] = trio.lowlevel.ParkingLot()
            try:
                await lot.park()
            finally:
                if not lot and self._waiting.get(revision) is lot:
                    del self._waiting[revision]
