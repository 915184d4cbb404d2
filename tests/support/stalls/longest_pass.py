"""The longest pass of the event loop, in CPU time of its thread.

CPU time leaves out the time in which other processes ran, but a core that shares its caches and its clock with busy
neighbours needs several times as much of it for the same work. So a bound holds for a machine that does nothing but
run the suite, and grows by what a fixed piece of work takes before and after the block (``slowness``).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

import trio


class LongestPass(trio.abc.Instrument):
    """``seconds``: the most CPU time between two waits for I/O."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = thread_time()

    def after_io_wait(self, timeout: float) -> None:
        self._began = thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.seconds = max(self.seconds, thread_time() - self._began)


@contextmanager
def measured() -> Iterator[LongestPass]:
    """Measure the passes within the block, without garbage collections: their work grows with all objects of all
    tests."""
    gc.collect()
    gc.disable()
    longest = LongestPass()
    trio.lowlevel.add_instrument(longest)
    try:
        yield longest
    finally:
        longest.before_io_wait(0.0)  # the present pass has not ended
        trio.lowlevel.remove_instrument(longest)
        gc.enable()


SAMPLE = json.dumps({f"k{number}": [{"name": f"c{number}", "env": [{"a": "b"}] * 3}] for number in range(400)})
USUAL = 0.004
"""Seconds of CPU of ``_work`` while the suite runs with both cores of a machine to itself. Alone it takes half."""
SLOWEST = 4.0
"""A bound grows by no more than this: beyond it, it would find nothing."""


def _work() -> int:
    """Read a document and visit its values, as a request does."""
    visited = 0
    for _ in range(3):
        left = [json.loads(SAMPLE)]
        while left:
            visited += 1
            value = left.pop()
            left.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return visited


def slowness() -> float:
    """Return how many times as long as usual a fixed piece of work takes now: 1 to SLOWEST."""
    least = SLOWEST * USUAL
    for _ in range(4):  # the first ones wait for memory, too
        began = thread_time()
        _work()
        least = min(least, thread_time() - began)
    return max(least / USUAL, 1.0)


def on_this_machine(seconds: float) -> float:
    """Return a bound of CPU time, longer by the slowness of now."""
    return seconds * slowness()


@contextmanager
def passes_below(seconds: float) -> Iterator[None]:
    """Fail if a pass within the block takes more CPU than this, or than as much on a slower machine."""
    before = slowness()
    with measured() as longest:
        yield
    bound = seconds * max(before, slowness())
    assert longest.seconds < bound, f"{longest.seconds:.3f} s, the bound is {bound:.3f} s"
