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
Those that take deliveries (delivery.py) sleep under the same interests, and sleep on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.watching.dispatcher import Lot, Pump, Recipient

Interest: TypeAlias = tuple[str, ...]

EVERYTHING: Interest = ("all",)


class Sleeper(Protocol):
    """What may sleep here: a watch cursor."""

    @property
    def interest(self) -> Interest: ...

    def wake(self, revision: int) -> None:
        """Sleep is over; everything up to and including the revision did not concern this sleeper."""
        ...

    def interrupt(self, quiet_until: int | None) -> None:
        """Sleep was cut short (deadline, cancelled); nothing up to the revision concerned this sleeper (None: nothing
        until now). Called at that very moment, not when the task comes to run: what is applied in between must not
        count as having been slept through."""
        ...


class RecipientSleeper(Sleeper, Recipient, Protocol):
    """A sleeper that takes deliveries."""


class Waiting:
    """The sleeping cursors of one view: those to be woken in ``_lots``, those delivered to in ``_served``."""

    __slots__ = ("_field_names", "_lots", "_pump", "_served")

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._lots: dict[Interest, dict[Sleeper, trio.lowlevel.Task]] = {}
        self._served: dict[Interest, Lot] = {}
        self._field_names: dict[str, int] = {}  # how many lots there are for a field, so that events look up only those

    def __len__(self) -> int:
        return sum(map(len, self._lots.values())) + sum(len(lot.asleep) for lot in self._served.values())

    async def park(self, sleeper: Sleeper) -> None:
        """Sleep until an event of the sleeper's interest is applied. Cancelling leaves nothing behind."""
        interest = sleeper.interest
        lot = self._lots.get(interest)
        if lot is None:
            lot = self._lots[interest] = {}
            self._count_field(interest, 1)
        lot[sleeper] = trio.lowlevel.current_task()

        def give_up(_: object) -> trio.lowlevel.Abort:
            del lot[sleeper]
            sleeper.interrupt(None)
            if not lot:
                self._remove(interest)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    async def park_served(self, sleeper: RecipientSleeper) -> None:
        """As ``park``, but sleep on while everything can be delivered."""
        interest = sleeper.interest
        lot = self._served.get(interest)
        if lot is None:
            lot = self._served[interest] = Lot()
            self._count_field(interest, 1)
        lot.asleep[sleeper] = trio.lowlevel.current_task()

        def give_up(_: object) -> trio.lowlevel.Abort:
            del lot.asleep[sleeper]
            sleeper.interrupt(lot.quiet_until)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(give_up)
        finally:
            if not lot.asleep and self._served.get(interest) is lot:
                del self._served[interest]
                self._count_field(interest, -1)

    def quiet_until(self, sleeper: RecipientSleeper) -> int | None:
        """For one that takes deliveries: it has been told what happened up to this revision; None: up to now."""
        lot = self._served.get(sleeper.interest)
        return lot.quiet_until if lot is not None and sleeper in lot.asleep else None

    def wake(self, events: Iterable[Event]) -> None:
        """Wake those whom these events (in order, already in the view) concern: each once, with its first event."""
        for event in events:
            if not self._lots and not self._served:
                return
            for interest in self._interests(event):
                if interest in self._lots:
                    self._wake_lot(interest, event.revision - 1)
                if interest in self._served:
                    self._pump.mark(self._served[interest], event.revision - 1)

    def wake_all(self, revision: int) -> None:
        """Wake everyone; nothing up to the revision concerned them, and nobody knows about what came after."""
        for interest in list(self._lots):
            self._wake_lot(interest, revision)
        for lot in self._served.values():
            quiet_until = revision if lot.quiet_until is None else lot.quiet_until
            for sleeper in list(lot.asleep):
                lot.wake(sleeper, quiet_until)

    def wake_one(self, sleeper: RecipientSleeper, revision: int) -> None:
        """Wake this one, if it sleeps; nothing up to the revision concerned it."""
        lot = self._lots.get(sleeper.interest, {})
        task = lot.pop(sleeper, None)
        if task is not None:
            if not lot:
                self._remove(sleeper.interest)
            sleeper.wake(revision)
            trio.lowlevel.reschedule(task)
            return
        served = self._served.get(sleeper.interest)
        if served is not None and sleeper in served.asleep:
            served.wake(sleeper, revision if served.quiet_until is None else served.quiet_until)

    def _wake_lot(self, interest: Interest, revision: int) -> None:
        for sleeper, task in self._remove(interest).items():
            sleeper.wake(revision)
            trio.lowlevel.reschedule(task)

    def _remove(self, interest: Interest) -> dict[Sleeper, trio.lowlevel.Task]:
        self._count_field(interest, -1)
        return self._lots.pop(interest)

    def _count_field(self, interest: Interest, lots: int) -> None:
        if interest[0] == "field":
            left = self._field_names.get(interest[1], 0) + lots
            self._field_names[interest[1]] = left
            if not left:
                del self._field_names[interest[1]]

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
