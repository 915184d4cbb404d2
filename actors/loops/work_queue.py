"""What is to be looked at: each key at most once, by one worker at a time, failures again after a while.

After client-go's rate limiting work queue. Bounded by the number of objects: a key that is in the queue is not added
again, and one that a worker has in hand is looked at once more when the worker is done with it.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

import trio

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """``first`` and ``longest``: seconds before a failure is tried again, doubling from one to the other."""

    def __init__(self, *, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready, or in hand and to be looked at again
        self._in_hand: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._count = 0
        self._workers = trio.lowlevel.ParkingLot()
        self._earlier = trio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._due)

    def add(self, key: K) -> None:
        """To be looked at as soon as possible."""
        self._due.pop(key, None)
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._in_hand:
            self._ready.append(key)
            self._workers.unpark()

    async def take(self) -> K:
        """The next key; to be given back with ``done``, ``retry`` or ``later``."""
        while not self._ready:
            await self._workers.park()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._in_hand.add(key)
        return key

    def done(self, key: K) -> None:
        """Nothing is left to do for the time being."""
        self._failures.pop(key, None)
        self._give_back(key)

    def retry(self, key: K) -> None:
        """Again after a while, unless it is added before."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.later(key, min(self._longest, self._first * 2 ** min(failures - 1, 60)))

    def later(self, key: K, seconds: float) -> None:
        """Again in so many seconds, unless it is added before."""
        if key not in self._waiting:
            due = trio.current_time() + seconds
            self._due[key] = due
            self._count += 1
            heappush(self._timers, (due, self._count, key))
            self._earlier.set()
        self._give_back(key)

    def _give_back(self, key: K) -> None:
        self._in_hand.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._workers.unpark()

    async def run(self) -> None:
        """Bring back what is to be tried again, when its time has come."""
        while True:
            self._earlier = trio.Event()
            now = trio.current_time()
            while self._timers and self._timers[0][0] <= now:
                due, _, key = heappop(self._timers)
                if self._due.get(key) == due:
                    self.add(key)
            with trio.move_on_at(self._timers[0][0] if self._timers else math.inf):
                await self._earlier.wait()
