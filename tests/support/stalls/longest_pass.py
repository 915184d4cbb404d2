"""The longest pass of the event loop, in CPU time of its thread: it does not depend on the machine's load."""

from __future__ import annotations

import gc
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


@contextmanager
def passes_below(seconds: float) -> Iterator[None]:
    """Fail if a pass within the block takes more CPU than this."""
    with measured() as longest:
        yield
    assert longest.seconds < seconds, longest.seconds
