"""Deadlines of connections that wait for answers: one timer for all.

A timer for each request, trio's cancel scope, costs as much as the encryption of a small request. Nearly all requests
are answered in time. So here a deadline is an entry of a dictionary, and one task sleeps until the earliest of them.
It closes the connections whose deadline has passed; their tasks are woken by that.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

NEVER: Final = math.inf


class Closable(Protocol):
    """A connection."""

    def close_nowait(self) -> None:
        """Close it. A task that waits on it is woken with an error."""
        ...


class Deadlines:
    """``run`` must be running. ``len``: the number of connections that wait."""

    def __init__(self) -> None:
        self._waiting: dict[Closable, float] = {}
        self._timer = trio.CancelScope()

    def begin(self, connection: Closable, deadline: float) -> None:
        """Close the connection at the deadline (trio time), unless ``end`` comes first."""
        self._waiting[connection] = deadline
        if deadline < self._timer.deadline:
            self._timer.deadline = deadline

    def end(self, connection: Closable) -> bool:
        """Forget the deadline. True: it had not passed."""
        return self._waiting.pop(connection, None) is not None

    async def run(self) -> None:
        """Close connections at their deadlines, until cancelled. It may run again after that."""
        while True:
            self._timer = trio.CancelScope(deadline=min(self._waiting.values(), default=NEVER))
            with self._timer:
                await trio.sleep_forever()
            now = trio.current_time()
            for connection in [each for each, deadline in self._waiting.items() if deadline <= now]:
                del self._waiting[connection]
                connection.close_nowait()

    def __len__(self) -> int:
        return len(self._waiting)
