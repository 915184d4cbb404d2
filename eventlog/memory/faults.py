"""Faults of the log in memory for tests: scripted errors, and gates at named points."""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from kubechronicle.eventlog.errors import LogUnavailable


class Fault(enum.Enum):
    """The fault of one scripted call."""

    UNAVAILABLE = "the database does not answer; nothing happens"
    LOST_BEFORE_COMMIT = "the connection breaks after sending, and the server drops the transaction"
    LOST_AFTER_COMMIT = "the transaction commits, then the connection breaks before the answer"
    LOST_IN_FLIGHT = "the connection breaks, and the transaction may still arrive: see deliver_straggler"


class FaultGate:
    """Stops calls at a held point until ``release``."""

    def __init__(self) -> None:
        self._released = trio.Event()
        self._arrived = trio.Event()
        self.arrivals = 0

    async def wait_arrived(self) -> None:
        """Return when at least one call has reached the point."""
        await self._arrived.wait()

    def release(self) -> None:
        self._released.set()

    async def pass_through(self) -> None:
        self.arrivals += 1
        self._arrived.set()
        await self._released.wait()


class FaultInjection:
    """The part of MemoryLog that fails and delays its calls."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, int] = defaultdict(int)
        """How often each call was made, for tests that count round trips."""
        self._script: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._gates: dict[str, FaultGate] = {}

    def fail_next(self, call: str, *faults: Fault) -> None:
        """Let the next calls of this name meet these faults, one each: ``append``, ``settle``, ``head``, ``read``,
        ``read_resource``, ``load``, ``get_at``, ``list_at``, …"""
        self._script[call].extend(faults)

    @contextmanager
    def hold(self, point: str) -> Iterator[FaultGate]:
        """Stop calls at the point within the block.

        A call's name is the point before its effect. ``append.committed``, ``head.read`` and ``read.read`` are the
        points between effect and return.
        """
        gate = self._gates[point] = FaultGate()
        try:
            yield gate
        finally:
            gate.release()
            del self._gates[point]

    async def _enter(self, call: str) -> Fault | None:
        self.calls[call] += 1
        await trio.lowlevel.checkpoint()
        await self._reach(call)
        fault = self._script[call].popleft() if self._script[call] else None
        if fault is Fault.UNAVAILABLE:
            raise LogUnavailable(f"scripted: {call} found no database")
        return fault

    async def _reach(self, point: str) -> None:
        gate = self._gates.get(point)
        if gate is not None:
            await gate.pass_through()
