"""The search for garbage in cycles among old objects, in short steps. When it begins, and why: cycles.py.

    1. Count the references that old objects have to each other.
    2. An old object with more references than these is in use; so is each that it reaches.
    3. The rest is suspected. It goes to generation 0 in portions, and the collector decides.

The search needs no consistent state. It may suspect what is in use: the collector looks at all references of a portion
at once, and keeps it. It may miss what becomes garbage meanwhile: the next search finds that. Cycles that depend on
another one come later than that, so that each portion is garbage by itself:

    A ⇄ B → C ⇄ D      portions of two: A and B first, then C and D

The search hides old tuples and frozensets of texts and the like from the collector, as CPython does with plain tuples:
they are in no cycle. A key of each stored object is one. Containers above HUGE items are taken to be in use, because
one look at them would be long. No request can make such a one (api/codecs/budget.py).
"""

from __future__ import annotations

import ctypes
import gc
import operator
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kubechronicle.ops.unused_parts import uninterrupted

STEP: Final = 4000
"""Objects and references in a step: 1 to 2 ms."""
PORTION: Final = 4000
"""Suspected objects that are collected at once, unless a single cycle has more."""
NUMBERED: Final = 200
"""Objects that are numbered in a step."""
PARTS: Final = 61
"""Dicts that the addresses are spread over."""
HUGE: Final = 400_000
"""Items of a container whose references are read in one step, of 15 ms for so many."""
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


class GarbageSearch:
    """One search among ``objects``, which it empties. ``collected``: objects that were freed."""

    def __init__(self, objects: list[Any]) -> None:
        self.size = len(objects)
        self.collected = 0
        self._objects = objects
        self._index = [dict[int, int]() for _ in range(PARTS)]
        self._counts = array("L", bytes(array("L").itemsize * self.size))
        self._in_use = bytearray(len(objects))
        self._kinds: dict[type, _Kind] = {}
        self._done = 0  # objects and references in this step

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
        counts = self._counts
        for each in self._objects:
            for piece in self._pieces(each):
                for found in piece:
                    counts[found] += 1
                if self._is_step():
                    yield
            if self._kind(each).is_fixed and not any(map(self._may_be_tracked, _items(each))):
                _UNTRACK(each)

    def _mark(self) -> Iterator[None]:
        """Mark all objects with other references, and those that they reach."""
        in_use, objects = self._in_use, self._objects
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
                for piece in self._pieces(objects[reached.pop()]):
                    for found in piece:
                        if not in_use[found]:
                            in_use[found] = 1
                            reached.append(found)
                    if self._is_step():
                        yield

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
        for cycle in _cycles(self._suspected(), self._suspects_of, self._is_step):
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

    def _suspects_of(self, number: int) -> Iterator[int | None]:
        """Yield the suspected objects that one refers to, and None after each piece."""
        for piece in self._pieces(self._objects[number]):
            yield from (each for each in piece if not self._in_use[each])
            yield None

    def _pieces(self, each: Any) -> Iterator[list[int]]:
        """Yield the numbers of the old objects that one refers to, in pieces of a step, at least one."""
        references = [] if self._is_huge(each) else gc.get_referents(each)
        index = self._index
        for start in range(0, max(1, len(references)), STEP):
            piece = references[start : start + STEP]
            self._done += 1 + len(piece)
            found = [index[address // 16 % PARTS].get(address) for address in map(id, piece)]
            yield [number for number in found if number is not None]

    def _is_step(self) -> bool:
        """Tell whether so much has been looked at that others should run."""
        if self._done < STEP:
            return False
        self._done = 0
        return True

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


def _cycles(
    numbers: Iterable[int], referents: Callable[[int], Iterator[int | None]], is_step: Callable[[], bool]
) -> Iterator[list[int] | None]:
    """Yield the members of each cycle of references, after all cycles that it leads to; and None after each step.

    This is Tarjan's algorithm for strongly connected components, with a stack of its own. A component of one object
    without a reference to itself is no cycle: it is freed with what refers to it. ``referents``: yields None now and
    then.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    of_themselves: set[int] = set()
    work: list[tuple[int, Iterator[int | None]]] = []

    def begin(number: int) -> None:
        order[number] = lowest[number] = len(order)
        path.append(number)
        on_path.add(number)
        work.append((number, referents(number)))

    for start in numbers:
        if start not in order:
            begin(start)
        while work:
            number, waiting = work[-1]
            for following in waiting:
                if following is None:
                    if is_step():
                        yield None
                elif following not in order:
                    begin(following)
                    break
                elif following in on_path:
                    lowest[number] = min(lowest[number], order[following])
                    if following == number:
                        of_themselves.add(number)
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[number])
                if lowest[number] == order[number]:
                    members: list[int] = []
                    while not members or members[-1] != number:
                        members.append(path.pop())
                        on_path.discard(members[-1])
                    if len(members) > 1 or number in of_themselves:
                        yield members


def _collect_portion(portion: list[Any]) -> int:
    """Move objects to generation 0, forget them, and collect it. Return the number of objects that were garbage."""
    if not portion:
        return 0
    # An object that something else tracks meanwhile would end the process. No bytecode runs between the calls, so no
    # other thread does.
    moves = [partial(call, each) for each in portion for call in (_UNTRACK, _TRACK)]
    with uninterrupted():
        deque(map(operator.call, moves), maxlen=0)
        del moves
        portion.clear()
        return gc.collect(0)
