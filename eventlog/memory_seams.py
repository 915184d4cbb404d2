"""How the log in memory is broken and held up in tests: scripted faults, and gates at named points."""

from __future__ import annotations

import enum

import trio


class Fault(enum.Enum):
    """What a scripted call meets."""

    UNAVAILABLE = "the database does not answer; nothing happens"
    LOST_BEFORE_COMMIT = "the connection breaks after sending, and the server drops the transaction"
    LOST_AFTER_COMMIT = "the transaction commits, then the connection breaks before the answer"
    LOST_IN_FLIGHT = "the connection breaks, and the transaction may still arrive: see deliver_straggler"


class Gate:
    """Calls that reach a held point stop here until ``release``."""

    def __init__(self) -> None:
        self._released = trio.Event()
        self._arrived = trio.Event()
        self.arrivals = 0

    async def wait_arrived(self) -> None:
        """Until at least one call has reached the point."""
        await self._arrived.wait()

    def release(self) -> None:
        self._released.set()

    async def pass_through(self) -> None:
        self.arrivals += 1
        self._arrived.set()
        await self._released.wait()
