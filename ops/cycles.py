"""Garbage in cycles: who collects it, when, and for how long the process stands still meanwhile.

Python frees most objects when their last reference goes. Cycles of references need the collector of CPython, which has
three generations here:

    0   new objects                    collected after 10,000 more of them
    1   those that survived that       collected after 2 collections of generation 0
    2   old ones: all others           never collected as a whole: a full collection takes up to 1 µs an object
    permanent                          all objects of the start, which nothing looks at again (gc.freeze)

So a collection looks at some 30,000 objects at most, about 5 ms. Old garbage is found by a search in short steps
(``_Search``), while requests go on:

    1. Count the references that old objects have to each other.
    2. An old object with more references than these is in use; so is each that it reaches.
    3. The rest is suspected. It goes to generation 0 in portions, and the collector decides.

The search needs no consistent state. It may suspect what is in use: the collector looks at all references of a portion
at once, and keeps it. It may miss what becomes garbage meanwhile: the next search finds that. Cycles that depend on
another one come later than that, so that each portion is garbage by itself:

    A ⇄ B → C ⇄ D      portions of two: A and B first, then C and D

The search hides old tuples and frozensets of texts and the like from the collector, as CPython does with plain tuples:
they are in no cycle. A key of each stored object is one.

A search begins when the old generation has grown by a quarter, as CPython's full collections do. It takes SHARE of a
core. Containers above HUGE items are taken to be in use, because one look at them would be long.

CPython 3.14.0 to 3.14.4 collect the old generation in steps by themselves. There, and where threads run without the
interpreter's lock, this module leaves it to them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import operator
import sys
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final

import trio
from prometheus_client import Counter, Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

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
STEP: Final = 4000
"""Objects and references in a step: 1 to 2 ms."""
PORTION: Final = 4000
"""Suspected objects that are collected at once, unless a single cycle has more."""
LOOK: Final = 1.0
"""Seconds between two looks at the growth."""
NUMBERED: Final = 200
"""Objects that are numbered in a step."""
PARTS: Final = 61
"""Dicts that the addresses are spread over."""
HUGE: Final = 50_000
GENERATIONS: Final = 3
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_HAS_COLLECTOR: Final = 1 << 14
"""The flag of types whose objects the collector may know (Py_TPFLAGS_HAVE_GC)."""
_SIZED: Final = (dict, list, tuple, set, frozenset, deque)


def _function(name: str) -> Any:
    """Return a function of CPython that takes an object."""
    found = getattr(ctypes.pythonapi, name)
    found.argtypes, found.restype = [ctypes.py_object], None
    return found


_UNTRACK: Final = _function("PyObject_GC_UnTrack")
_TRACK: Final = _function("PyObject_GC_Track")


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
        search = Search(objects)
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
        self._counts = [[0] * (len(BUCKETS) + 1) for _ in range(GENERATIONS)]
        self._seconds = [0.0] * GENERATIONS

    def note(self, generation: int, seconds: float) -> None:
        self._counts[generation][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[generation] += seconds

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "kubechronicle_garbage_collection_pause_seconds",
            "CPU of the thread that Python's collector of cycles stopped, by generation.",
            labels=["generation"],
        )
        bounds = [*map(str, BUCKETS), "+Inf"]
        for generation, counts in enumerate(self._counts):
            buckets: list[tuple[str, float]] = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([str(generation)], buckets=buckets, sum_value=self._seconds[generation])
        yield family


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type. ``size``: counts the items of a container. ``is_fixed``: a container that never gets others."""

    size: Callable[[Any], int] | None
    is_fixed: bool


def _kind_of(kind: type) -> _Kind:
    base = next((each for each in _SIZED if issubclass(kind, each)), None)
    is_fixed = kind is frozenset or (base is tuple and not kind.__dictoffset__)
    return _Kind(base.__len__ if base is not None else None, is_fixed)


def _items(each: Any) -> Iterator[Any]:
    return (tuple if isinstance(each, tuple) else frozenset).__iter__(each)


class Search:
    """One search among ``objects``, which it empties. ``collected``: objects that were freed."""

    def __init__(self, objects: list[Any]) -> None:
        self.size = len(objects)
        self.collected = 0
        self._objects = objects
        self._index = [dict[int, int]() for _ in range(PARTS)]
        self._counts = array("L", bytes(array("L").itemsize * self.size))
        self._in_use = bytearray(len(objects))
        self._kinds: dict[type, _Kind] = {}

    def steps(self) -> Iterator[None]:
        yield from self._number()
        yield from self._count()
        yield from self._mark()
        yield from self._collect()
        yield from self._release()

    def _number(self) -> Iterator[None]:
        """Number the objects by their addresses. One large dict would grow in long steps."""
        for number, address in enumerate(map(id, self._objects)):
            self._index[address // 16 % PARTS][address] = number
            if not number % NUMBERED:  # the dicts grow at about the same time
                yield

    def _count(self) -> Iterator[None]:
        """Count the references among the objects. Those of huge containers are not, so their items seem in use."""
        counts, done = self._counts, 0
        for each in self._objects:
            references = self._references(each)
            for found in self._among(references):
                counts[found] += 1
            if self._kind(each).is_fixed and not any(map(self._may_be_tracked, _items(each))):
                _UNTRACK(each)
            done += 1 + len(references)
            if done > STEP:
                yield
                done = 0

    def _mark(self) -> Iterator[None]:
        """Mark all objects with other references, and those that they reach."""
        in_use, objects, done = self._in_use, self._objects, 0
        reached: list[int] = []
        for number in self._roots():
            if number is None:
                yield
                continue
            if in_use[number]:
                continue
            in_use[number] = 1
            reached.append(number)
            while reached:
                references = self._references(objects[reached.pop()])
                for found in self._among(references):
                    if not in_use[found]:
                        in_use[found] = 1
                        reached.append(found)
                done += 1 + len(references)
                if done > STEP:
                    yield
                    done = 0

    def _roots(self) -> Iterator[int | None]:
        """Yield the objects that others than these refer to, and None now and then."""
        objects, counts, count, ours = self._objects, self._counts, sys.getrefcount, _own_references()
        for number in range(self.size):
            if count(objects[number]) - ours > counts[number] or self._is_huge(objects[number]):
                yield number
            if not number % STEP:
                yield None

    def _suspected(self) -> Iterator[int]:
        number = self._in_use.find(0)
        while number >= 0:
            yield number
            number = self._in_use.find(0, number + 1)

    def _collect(self) -> Iterator[None]:
        """Let the collector decide about all cycles of the suspected objects."""
        portion: list[Any] = []
        found: list[list[int]] = []
        for cycle in _cycles(self._suspected(), self._suspects_of):
            if cycle is None:
                yield
            else:
                found.append(cycle)
        # A cycle comes after all that it refers to; the collector must get it before them.
        while found:
            cycle = found.pop()
            if portion and len(portion) + len(cycle) > PORTION:
                self.collected += _collect_portion(portion)
                yield
            for number in cycle:
                portion.append(self._objects[number])
                self._objects[number] = None
        self.collected += _collect_portion(portion)
        yield

    def _suspects_of(self, number: int) -> list[int]:
        """Return the suspected objects that one refers to."""
        return [each for each in self._among(self._references(self._objects[number])) if not self._in_use[each]]

    def _among(self, references: list[Any]) -> list[int]:
        """Return the numbers of those that are among the objects."""
        index = self._index
        found = [index[address // 16 % PARTS].get(address) for address in map(id, references)]
        return [number for number in found if number is not None]

    def _references(self, each: Any) -> list[Any]:
        return [] if self._is_huge(each) else gc.get_referents(each)

    def _may_be_tracked(self, each: Any) -> bool:
        """Tell whether an object is in a cycle, or may be some day. Dicts are tracked when they get a container."""
        has_collector = bool(type(each).__flags__ & _HAS_COLLECTOR)
        return has_collector and (not self._kind(each).is_fixed or gc.is_tracked(each))

    def _kind(self, each: Any) -> _Kind:
        try:
            return self._kinds[type(each)]
        except KeyError:
            made = self._kinds[type(each)] = _kind_of(type(each))
            return made

    def _is_huge(self, each: Any) -> bool:
        """Tell whether an object has so many items that one look at it is long."""
        size = self._kind(each).size
        return size is not None and size(each) > HUGE

    def _release(self) -> Iterator[None]:
        """Forget all objects: some may be freed by this."""
        while self._index:
            self._index.pop()
            yield
        while self._objects:
            del self._objects[-STEP:]
            yield


def _own_references() -> int:
    """Return what ``sys.getrefcount`` tells of an item of a list that nothing else refers to."""
    probe = [object()]
    number = 0
    return sys.getrefcount(probe[number])


def _cycles(numbers: Iterable[int], referents: Any) -> Iterator[list[int] | None]:
    """Yield the members of each cycle of references, after all cycles that it leads to; and None now and then.

    This is Tarjan's algorithm for strongly connected components, with a stack of its own. A component of one object
    without a reference to itself is no cycle: it is freed with what refers to it.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    done = 0
    for start in numbers:
        if start in order:
            continue
        work: list[tuple[int, list[int]]] = [(start, referents(start))]
        order[start] = lowest[start] = len(order)
        path.append(start)
        on_path.add(start)
        while work:
            done += 1
            if not done % STEP:
                yield None
            number, waiting = work[-1]
            if waiting:
                following = waiting.pop()
                if following not in order:
                    order[following] = lowest[following] = len(order)
                    path.append(following)
                    on_path.add(following)
                    work.append((following, referents(following)))
                elif following in on_path:
                    lowest[number] = min(lowest[number], order[following])
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[number])
            if lowest[number] == order[number]:
                members: list[int] = []
                while not members or members[-1] != number:
                    members.append(path.pop())
                    on_path.discard(members[-1])
                if len(members) > 1 or number in referents(number):
                    yield members


def _collect_portion(portion: list[Any]) -> int:
    """Move objects to generation 0, forget them, and collect it. Return the number of objects that were garbage."""
    if not portion:
        return 0
    # An object that something else tracks meanwhile would end the process. No bytecode runs between the calls, so no
    # other thread does.
    moves = [partial(call, each) for each in portion for call in (_UNTRACK, _TRACK)]
    with _uninterrupted():
        deque(map(operator.call, moves), maxlen=0)
        del moves
        portion.clear()
        return gc.collect(0)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let no collection begin within the block: it would take the portion for one in use."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
