"""The end of all watches and other streams when the server stops."""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

STEP: Final = 0.1
"""Seconds between two groups of streams that end."""


class Stream(Protocol):
    """A cursor of a watch, or the body of an answer of another server."""

    def end(self) -> None:
        """End the stream at once. It is not waited for."""


class Drain:
    """Ends the streams of all clients when the server is about to stop. The server's own cursors are not included."""

    def __init__(self) -> None:
        self.begun = False
        self.rejecting = False
        self._cursors: set[Stream] = set()
        self._running = 0
        self._quiet = trio.Event()

    def begin(self) -> None:
        self.begun = True
        for cursor in list(self._cursors):
            cursor.end()

    async def begin_slowly(self, seconds: float) -> None:
        """End the streams one after the other within this time, so that their clients do not all return at once
        (--shutdown-watch-termination-grace-period)."""
        self.begun = True
        waiting, until = list(self._cursors), trio.current_time() + seconds
        while waiting:
            left = until - trio.current_time()
            ended = max(1, math.ceil(len(waiting) * STEP / left)) if left > 0 else len(waiting)
            for cursor in waiting[:ended]:
                cursor.end()
            del waiting[:ended]
            await trio.sleep(min(STEP, max(left, 0.0)) if waiting else 0)

    async def reject(self, seconds: float) -> None:
        """Reject new requests, and return when the running ones are answered, or after this time."""
        self.rejecting = True
        with trio.move_on_after(seconds):
            while self._running:
                self._quiet = trio.Event()
                await self._quiet.wait()

    def enter(self) -> None:
        """Count a request that `reject` waits for."""
        self._running += 1

    def leave(self) -> None:
        self._running -= 1
        if not self._running:
            self._quiet.set()

    def add(self, cursor: Stream) -> None:
        self._cursors.add(cursor)

    def discard(self, cursor: Stream) -> None:
        self._cursors.discard(cursor)
