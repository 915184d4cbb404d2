"""Pauses: long work on the event loop stops after a few milliseconds, so that other tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final

import trio

TURN: Final = 0.004
"""Seconds of work after which other tasks run."""


class Pauses:
    """The pauses of one piece of work, which calls ``pause`` after each short step."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def pause(self) -> None:
        if perf_counter() - self._began > TURN:
            await trio.lowlevel.checkpoint()
            self._began = perf_counter()

    async def take(self, steps: Iterator[None]) -> Any:
        """Take all steps, with pauses between them. Return their result."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
            if perf_counter() - self._began > TURN:
                await self.pause()
