"""Garbage in cycles: who collects it, when, and for how long the process stands still meanwhile.

Python frees most objects when their last reference goes. Cycles of references need the collector of CPython, which has
three generations here:

    0   new objects                    collected after 10,000 more of them
    1   those that survived that       collected after 2 collections of generation 0
    2   old ones: all others           never collected as a whole: a full collection takes up to 1 µs an object
    permanent                          all objects of the start, which nothing looks at again (gc.freeze)

So a collection looks at some 30,000 objects at most, about 5 ms. Old garbage is found by a search in short steps
(garbage_search.py), while requests go on.

A search begins when the old generation has grown by a quarter, as CPython's full collections do. It takes SHARE of a
core.

CPython 3.14.0 to 3.14.4 collect the old generation in steps by themselves. There, and where threads run without the
interpreter's lock, this module leaves it to them.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from typing import Final

import trio
from prometheus_client import Counter, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kubechronicle.eventlog.measures import Histogram, histogram_family
from kubechronicle.ops.garbage_search import GarbageSearch

NEW: Final = 10_000
"""Objects after which generation 0 is collected. Waiting writes hold some hundred each: with 2,000, collections that
found nothing took 1.9 % of the CPU."""
YOUNG: Final = 2
"""Collections of generation 0 to one of generation 1."""
NEVER: Final = (1 << 31) - 1
GROWTH: Final = 0.25
"""The growth of the old generation since the last search, as a share, after which the next one begins."""
LEAST_GROWTH: Final = 100_000
"""Objects that it must have grown by at least."""
SHARE: Final = 0.1
"""The share of a core that a search takes."""
LOOK: Final = 1.0
"""Seconds between two looks at the growth."""
GENERATIONS: Final = 3
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


def in_steps() -> bool:
    """Tell whether this interpreter has generations, of which the oldest is collected at once."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    # An incremental collector has no threshold for the old generation.
    return sys.implementation.name == "cpython" and bool(has_lock) and _INITIAL[2] > 0


_INITIAL: Final = gc.get_threshold()


class Cycles:
    """The owner of all collections of this process. ``begin`` is called once, when the server serves."""

    def __init__(self) -> None:
        self._pauses = _Pauses()
        self.searches = Counter(
            "kubechronicle_garbage_searches", "Searches for cycles among old objects.", registry=None
        )
        self.searched = Counter(
            "kubechronicle_garbage_search_cpu_seconds", "CPU of these searches, on the event loop.", registry=None
        )
        self.found = Counter(
            "kubechronicle_garbage_search_collected", "Old objects that these searches have freed.", registry=None
        )
        self.old = Gauge(
            "kubechronicle_old_objects", "Old objects at the last search that the collector knows.", registry=None
        )
        self._old = 0
        self._grown = 0
        self._began = 0.0
        self._in_steps = in_steps()
        self._asked = self._answered = 0  # calls of ``collect``, and those of them that a search has served
        self._wanted = trio.Event()
        self._waiting = trio.lowlevel.ParkingLot()

    def register(self, registry: CollectorRegistry) -> None:
        for each in (self._pauses, self.searches, self.searched, self.found, self.old):
            registry.register(each)

    def begin(self) -> None:
        """Begin to collect, which was off until now. Objects of the start are frozen: each pass over them would take
        a fifth of a second."""
        gc.freeze()
        gc.callbacks.append(self._on_collection)
        gc.set_threshold(NEW, YOUNG, NEVER if self._in_steps else 20)
        gc.enable()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            # Objects made and not freed since the last collection. It counts none below zero, so this may be too many.
            self._grown += gc.get_count()[0]
            self._began = time.thread_time()
            return
        self._pauses.note(info["generation"], time.thread_time() - self._began)
        self._grown -= info["collected"]

    def _has_grown(self) -> bool:
        return self._grown > max(LEAST_GROWTH, GROWTH * self._old)

    async def run(self) -> None:
        """Search whenever the old generation has grown, or ``collect`` asks. Until cancelled."""
        while self._in_steps:
            with trio.move_on_after(LOOK):
                await self._wanted.wait()
            if not self._wanted.is_set() and not self._has_grown():
                continue
            asked = self._asked
            self._wanted = trio.Event()
            await self._search(is_asked=asked != self._answered)
            self._answered = asked
            self._waiting.unpark_all()
        await trio.sleep_forever()

    async def collect(self) -> None:
        """Return when a search that begins after this call has ended."""
        if not self._in_steps:
            await trio.to_thread.run_sync(gc.collect)
            return
        self._asked = asked = self._asked + 1
        self._wanted.set()
        while self._answered < asked:
            await self._waiting.park()

    async def _search(self, *, is_asked: bool) -> None:
        """Search in steps, without pauses while somebody waits for it."""
        if is_asked:
            gc.collect(1)  # young objects, too
        objects = gc.get_objects(generation=2)
        self._grown = len(objects) - self._old  # it was an estimate
        if not is_asked and not self._has_grown():
            return
        self._grown = 0
        search = GarbageSearch(objects)
        steps = search.steps()
        while True:
            began = time.thread_time()
            is_done = next(steps, self) is self
            used = time.thread_time() - began
            self.searched.inc(used)
            if is_done:
                break
            await trio.sleep(0 if is_asked or self._wanted.is_set() else used * (1 / SHARE - 1))
        self.searches.inc()
        self.found.inc(search.collected)
        self._grown += search.collected  # which were old ones
        self._old = search.size - search.collected
        self.old.set(self._old)


class _Pauses(Collector):
    """The pauses by generation, as plain numbers: a collection may begin in a thread that holds a lock of a metric."""

    def __init__(self) -> None:
        self._histograms = {(str(generation),): Histogram(BUCKETS) for generation in range(GENERATIONS)}

    def note(self, generation: int, seconds: float) -> None:
        self._histograms[str(generation),].add(seconds)

    def collect(self) -> Iterator[Metric]:
        yield histogram_family(
            "kubechronicle_garbage_collection_pause_seconds",
            "CPU of the thread that Python's collector of cycles stopped, by generation.",
            ["generation"],
            self._histograms,
        )
