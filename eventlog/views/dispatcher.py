"""The dispatcher: delivers events to waiting watchers without waking their tasks.

Waking a task for each watcher costs more than the event. The task is scheduled, asks its cursor, passes every layer up
to its connection, and parks again. One task, the dispatcher, does this for all watchers. It goes from watcher group to
watcher group and from watcher to watcher, and lets other tasks run after each TIME_SLICE. A watcher is woken instead,
and continues by itself, if its history has scrolled out, its connection is busy, or there is more than fits one write.

    event 7    group ("all",): pending after 6, queued       each watcher takes the events that follow 6
    event 8    meanwhile: pending after 7, queued again      watchers served later take 7 and 8 now, and nothing then

Invariant: every event of a group's interest up to ``delivered_until`` has been delivered to the watchers of the group.
A watcher may be further on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Event

TIME_SLICE = 0.0005
"""Seconds of delivery after which other tasks run. A request needs a dozen turns. Requests run before event delivery:
events that wait are sent in larger, cheaper batches."""

LONGEST_SLICE = 4
"""In TIME_SLICEs. A slice is twice as long as the one before if no other task ran between them: a turn of the scheduler
costs as much as two watchers."""

ALONE = 0.0001
"""Seconds of a turn of the scheduler in which no other task did any work to speak of."""

LONG_ROUND = 0.005
"""Seconds of a round after which the group rests as long as the round has taken. The events of that time are delivered
together: an event costs a large group mostly one send for each watcher, and a second event in it little more. So a
large group takes at most half of the time, and its events are late by at most a round."""

LONGEST_REST = 0.1
"""Seconds."""

MAX_SHARED_BATCHES = 32
"""Batches kept during one round. Few are needed, but the view may advance many times while the round lasts."""


class EventBatch(list[Event]):
    """Events that follow a position in the history of a resource.

    ``until``: the revision after which the next batch begins.
    ``encodings``: the batch as written to one watcher, by representation, for the other watchers.
    """

    __slots__ = ("encodings", "until")

    def __init__(self, events: Iterable[Event], until: int) -> None:
        super().__init__(events)
        self.until = until
        self.encodings: dict[object, Any] = {}


SharedBatches: TypeAlias = dict[object, EventBatch]
"""Batches of one round, by position and scope. Most watchers of a group need the same batch."""


class DeliveryWatcher(Protocol):
    """A watcher that takes events while it waits: a watch cursor with a ``deliver_to``."""

    def deliver(self, revision: int, shared: SharedBatches) -> bool:
        """Take the events after the revision; everything up to it has been delivered. False: the watcher's task must
        continue from there. Raises nothing."""
        ...

    def wake(self, revision: int) -> None: ...


class WatcherGroup:
    """The watchers that wait for events of one interest.

    ``waiting``: the parked task of each watcher.
    ``pending_after``: events after this revision are to be delivered, so the group is queued; None: no such events.
    ``delivering_after``: the same for the round under way; None: no round.
    ``rests_until``: no round begins before this time (trio's clock).
    """

    __slots__ = ("delivering_after", "pending_after", "rests_until", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[DeliveryWatcher, trio.lowlevel.Task] = {}
        self.pending_after: int | None = None
        self.delivering_after: int | None = None
        self.rests_until = 0.0

    @property
    def delivered_until(self) -> int | None:
        """Every event up to this revision has been delivered to the group. None: every event there is."""
        return self.pending_after if self.delivering_after is None else self.delivering_after

    def wake(self, watcher: DeliveryWatcher, revision: int) -> None:
        """End the watcher's wait; everything up to the revision has been delivered to it."""
        task = self.waiting.pop(watcher)
        watcher.wake(revision)
        trio.lowlevel.reschedule(task)


class Dispatcher:
    """Delivers to watcher groups in the order in which they were queued. Nothing is delivered unless ``run`` runs, or
    ``deliver`` is called.

    A round that is stopped half-way goes on where it stopped, in the next call.
    """

    def __init__(self) -> None:
        self._queue: deque[WatcherGroup] = deque()
        self._queued = trio.Event()
        self._slice_end = 0.0
        self._rounds: Iterator[None] | None = None  # of the queue; None: it is empty

    def enqueue(self, group: WatcherGroup, revision: int) -> None:
        """Queue the group: there is an event of its interest after the revision."""
        if group.pending_after is None:
            group.pending_after = revision
            self._queue.append(group)
            self._queued.set()

    def deliver(self, slices: int = 1) -> None:
        """Deliver for so many TIME_SLICEs at most; ``run`` continues from there.

        The tail calls this before a write is answered: so the watches of a client usually show its own write before the
        answer does. Controllers that find their informers behind their own write wait and try again.
        """
        if self._rounds is None:
            if not self._queue:
                return
            self._rounds = self._deliver_all()
        self._slice_end = time.perf_counter() + TIME_SLICE * slices
        for _ in self._rounds:
            return
        self._rounds = None

    async def run(self) -> None:
        slices = 1
        while True:
            if self._rounds is None and (wake_at := self._next_round()) > trio.current_time():
                self._queued = trio.Event()
                with trio.move_on_at(wake_at):
                    await self._queued.wait()
                slices = 1
            self.deliver(slices)
            ended = time.perf_counter()
            await trio.lowlevel.checkpoint()
            slices = min(2 * slices, LONGEST_SLICE) if time.perf_counter() - ended < ALONE else 1

    def _next_round(self) -> float:
        """Return the time at which a queued group has rested; infinity if the queue is empty."""
        return min((group.rests_until for group in self._queue), default=math.inf)

    def _deliver_all(self) -> Iterator[None]:
        """Serve the groups of the queue that do not rest, and yield after each time slice."""
        queue = self._queue
        while self._next_round() <= trio.current_time():
            while queue[0].rests_until > trio.current_time():
                queue.rotate(-1)
            yield from self._deliver_round(queue[0])
            queue.popleft()

    def _deliver_round(self, group: WatcherGroup) -> Iterator[None]:
        group.delivering_after, group.pending_after = group.pending_after, None
        revision = group.delivering_after
        if revision is not None:
            waiting, now = group.waiting, time.perf_counter
            shared: SharedBatches = {}
            started, taken = now(), 0.0
            for watcher in list(waiting):
                # Checked twice: watchers leave meanwhile, even the one that is being served (its client is gone).
                if watcher in waiting and not watcher.deliver(revision, shared) and watcher in waiting:
                    group.wake(watcher, revision)
                if now() >= self._slice_end:
                    taken += now() - started
                    yield
                    started = now()
            taken += now() - started
            if taken >= LONG_ROUND:
                group.rests_until = trio.current_time() + min(taken, LONGEST_REST)
        group.delivering_after = None


# -- watcher groups ----------------------------------------------------------------------------------------------------
#
# Watcher groups: the waiting watch cursors of one view, grouped by interest.
#
# No events and no views here. A waiting watcher is a parked Trio task and one dictionary item. It has no task of its
# own, no timer, no channel. Its interest is the most selective property of its scope, so that a change costs in
# proportion to the watchers it concerns:
#
#     cursor                            interest
#     all pods                          ("all",)
#     pods of namespace a               ("namespace", "a")
#     pod a/b                           ("name", "a", "b")
#     pods named b                      ("name", "", "b")         also: cluster-scoped object b
#     pods of node n                    ("field", "spec.nodeName", "n")
#
# Invariant: a waiting watcher is in exactly one group, and no event of that interest happens while it waits. So the
# events it has not seen begin with the one that wakes it, however long it waited and whichever events have scrolled
# out meanwhile. Watchers that take deliveries (dispatcher.py) wait under the same interests, and continue to wait.

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
            trio.lowlevel.reschedule(task)
            return
        group = self._delivered.get(watcher.interest)
        if group is not None and watcher in group.waiting:
            group.wake(watcher, revision if group.delivered_until is None else group.delivered_until)

    def _wake_group(self, interest: Interest, revision: int) -> None:
        for watcher, task in self._remove(interest).items():
            watcher.wake(revision)
            trio.lowlevel.reschedule(task)

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
