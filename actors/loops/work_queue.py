"""WorkQueue: the keys a control loop has to process, after client-go's rate limiting work queue.

Each key is queued at most once and processed by one worker at a time. A key added while a worker processes it is
processed once more afterwards. So the queue is bounded by the number of objects. Failed keys return after a delay. A
key may have a cause, the revision of the change for which it was added (edits.py).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from heapq import heappop, heappush
from typing import Generic, NoReturn, TypeVar

import trio

from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.queue_measures import QueueMeasures

log = logging.getLogger(__name__)

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Retries wait ``first`` seconds after the first failure of a key, then twice as long each time, at most
    ``longest``. ``measures``: of the loop's queues."""

    def __init__(self, *, first: float, longest: float, measures: QueueMeasures | None = None) -> None:
        self._measures = measures if measures is not None else QueueMeasures()
        self._measures.restart()
        self._first = first
        self._longest = longest
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()  # in _ready, or in process and added again
        self._in_process: set[K] = set()
        self._failures: dict[K, int] = {}
        self._causes: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._count = 0
        self._idle_workers = trio.lowlevel.ParkingLot()
        self._timers_changed = trio.Event()

    def __len__(self) -> int:
        return len(self._queued) + len(self._due)

    def add(self, key: K, *, cause: int = 0) -> None:
        """Queue the key for the next free worker, ahead of any delay. ``cause`` 0: the one it has, if any."""
        if cause:
            self._causes[key] = cause
        self._due.pop(key, None)
        if key in self._queued:
            return
        self._queued.add(key)
        self._measures.added(key)
        if key not in self._in_process:
            self._ready.append(key)
            self._idle_workers.unpark()

    def cause(self, key: K) -> int:
        """Return the cause of a key until it is processed; 0: it has none."""
        return self._causes.get(key, 0)

    async def take(self) -> K:
        """Wait for the next key. The worker must return it with ``done``, ``retry`` or ``later``."""
        while not self._ready:
            await self._idle_workers.park()
        key = self._ready.popleft()
        self._queued.discard(key)
        self._in_process.add(key)
        self._measures.taken(key)
        return key

    def done(self, key: K) -> None:
        """Return a key that was processed, and forget its failures."""
        self._failures.pop(key, None)
        if key not in self._queued:
            self._causes.pop(key, None)
        self._give_back(key)

    def retry(self, key: K) -> None:
        """Return a key that failed: queue it again after a delay, or when it is added."""
        self._measures.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.later(key, min(self._longest, self._first * 2 ** min(failures - 1, 60)))

    def later(self, key: K, seconds: float) -> None:
        """Return a key to be queued again after ``seconds``, or when it is added."""
        if key not in self._queued:
            due = trio.current_time() + seconds
            self._due[key] = due
            self._count += 1
            heappush(self._timers, (due, self._count, key))
            self._timers_changed.set()
        self._give_back(key)

    def _give_back(self, key: K) -> None:
        self._in_process.discard(key)
        self._measures.given_back(key)
        if key in self._queued:
            self._ready.append(key)
            self._idle_workers.unpark()

    def start(
        self,
        nursery: trio.Nursery,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        component: str,
        workers: int = 1,
    ) -> None:
        """Start the timer of delayed keys, and workers that process keys until cancelled.

        ``reconcile``: returns the seconds until the key is processed again; 0: not until it is added; None: retry.
        ``component``: the loop's name, for log lines.
        """
        nursery.start_soon(self.run)
        for _ in range(workers):
            nursery.start_soon(partial(self.work, reconcile, component=component))

    async def work(self, reconcile: Callable[[K], Awaitable[float | None]], *, component: str) -> NoReturn:
        """Process keys one by one as ``start`` says. A key that fails with RETRIED is retried."""
        while True:
            key = await self.take()
            try:
                pause = await reconcile(key)
            except RETRIED as error:
                log.info("%s could not reconcile %s, trying again: %s", component, key, error)
                self.retry(key)
                continue
            if pause is None:
                self.retry(key)
            elif pause:
                self.later(key, pause)
            else:
                self.done(key)

    async def run(self) -> NoReturn:
        """Queue delayed keys when their time comes, until cancelled."""
        while True:
            self._timers_changed = trio.Event()
            now = trio.current_time()
            while self._timers and self._timers[0][0] <= now:
                due, _, key = heappop(self._timers)
                if self._due.get(key) == due:
                    self.add(key)
            with trio.move_on_at(self._timers[0][0] if self._timers else math.inf):
                await self._timers_changed.wait()
