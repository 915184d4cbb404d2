"""Delivery: sleeping watchers are told of events without being woken.

Waking a task for each watcher costs more than the event: it is scheduled, asks its cursor, goes through every layer up
to its connection, and parks again. One task, the pump, does this for all of them, from lot to lot and from recipient
to recipient, and lets other tasks run after each SLICE of time. A recipient that cannot be served at once (its history
has scrolled out, its connection is busy, there is more than fits one write) is woken and goes on by itself.

    event 7    lot ("all",): marked 6, queued     pump: each recipient takes what follows 6
    event 8    meanwhile: marked 7, queued again  those served later take 7 and 8 at once, and find nothing then

Invariant: ``quiet_until`` of a lot is a revision up to which nothing happened that its recipients have not been told,
unless their own place is further on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeAlias

import trio

from kubechronicle.eventlog.entries import Event

SLICE = 0.0005
"""Seconds of serving, after which other tasks get their turn. A request takes a dozen turns. It goes first, as it were:
what is delivered later is delivered with more events to a write, and so for less."""


SHARED = 32
"""Batches kept during a round: few are asked for, but while it lasts more may happen."""


class Batch(list[Event]):
    """Events that follow a place in the history of a resource. ``until``: the place they lead to; ``told``: what they
    were made into for one recipient, for the others."""

    __slots__ = ("told", "until")

    def __init__(self, events: Iterable[Event], until: int) -> None:
        super().__init__(events)
        self.until = until
        self.told: dict[object, object] = {}


Shared: TypeAlias = dict[object, Batch]
"""Of one round: most recipients of a lot are at the same place, and are told the same."""


class Recipient(Protocol):
    """Who takes deliveries in its sleep: a watch cursor with an outlet."""

    def deliver(self, revision: int, shared: Shared) -> bool:
        """Take what there is; nothing up to the revision concerned it. False: its task must go on from there. Raises
        nothing."""
        ...

    def wake(self, revision: int) -> None: ...


class Lot:
    """Recipients that sleep under one interest."""

    __slots__ = ("asleep", "marked", "serving")

    def __init__(self) -> None:
        self.asleep: dict[Recipient, trio.lowlevel.Task] = {}
        self.marked: int | None = None  # something happened after this revision: the lot lies in the pump's queue
        self.serving: int | None = None  # the same, of the round that has begun

    @property
    def quiet_until(self) -> int | None:
        """See the head of this file; None: nothing is on its way."""
        return self.marked if self.serving is None else self.serving

    def wake(self, recipient: Recipient, revision: int) -> None:
        """Its sleep is over; nothing up to the revision concerned it."""
        task = self.asleep.pop(recipient)
        recipient.wake(revision)
        trio.lowlevel.reschedule(task)


class Pump:
    """Serves lots in the order in which they were marked. ``run`` must be running for recipients to hear of anything;
    stopped in the middle of a round, it begins that round again: who was served finds nothing."""

    def __init__(self) -> None:
        self._queue: deque[Lot] = deque()
        self._news = trio.Event()
        self._slice_began = 0.0

    def mark(self, lot: Lot, revision: int) -> None:
        """Something after the revision concerns those in the lot."""
        if lot.marked is None:
            lot.marked = revision
            self._queue.append(lot)
            self._news.set()

    async def run(self) -> None:
        while True:
            if not self._queue:
                self._news = trio.Event()
                await self._news.wait()
                self._slice_began = time.perf_counter()
            await self._serve(self._queue[0])
            self._queue.popleft()

    async def _serve(self, lot: Lot) -> None:
        if lot.serving is None:
            lot.serving, lot.marked = lot.marked, None
        revision = lot.serving
        if revision is not None:
            asleep, now = lot.asleep, time.perf_counter
            shared: Shared = {}
            for recipient in list(asleep):
                # Asked again each time: others leave meanwhile, even the one that is being served (its client is gone).
                if recipient in asleep and not recipient.deliver(revision, shared) and recipient in asleep:
                    lot.wake(recipient, revision)
                if now() - self._slice_began >= SLICE:
                    await trio.lowlevel.checkpoint()
                    self._slice_began = now()
        lot.serving = None
