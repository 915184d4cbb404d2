"""A bounded mailbox: the only way into an actor.

It outlives the actor's incarnations: what lies in it when the actor crashes is handled by the next one. Messages are
taken in the order they were put. One task receives; any task of the same trio run may put.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from kubechronicle.actors.errors import MailboxFull

M = TypeVar("M")

# Enough for every request --max-mutating-requests-inflight lets through on one kind, several times over; a longer
# queue would only turn overload into time-outs.
DEFAULT_CAPACITY = 4096


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """``waiting`` messages now; ``received`` and ``refused`` since start."""

    waiting: int
    received: int
    refused: int


class Mailbox(Generic[M]):
    def __init__(self, owner: str, *, capacity: int = DEFAULT_CAPACITY) -> None:
        self._owner = owner
        self._capacity = capacity
        self._messages: deque[M] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._received = 0
        self._refused = 0

    def put_nowait(self, message: M, *, reserved: bool = False) -> None:
        """Leave a message. MailboxFull at the bound, unless ``reserved``: an answer to something the actor itself began
        (their number is bounded by what it accepted)."""
        if len(self._messages) >= self._capacity and not reserved:
            self._refused += 1
            raise MailboxFull(self._owner, self._capacity)
        self._messages.append(message)
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader)
            self._reader = None

    @property
    def idle(self) -> bool:
        """Whether the reader sleeps because nothing is there: what it would do now, it would do next of all."""
        return self._reader is not None

    async def wait_not_empty(self) -> None:
        """Return once a message waits. One reader only."""
        if self._messages:
            await trio.lowlevel.checkpoint()
            return
        if self._reader is not None:
            raise trio.BusyResourceError(f"two tasks read the mailbox of {self._owner}")
        self._reader = trio.lowlevel.current_task()

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def take_nowait(self) -> M | None:
        """The oldest message, or None if there is none."""
        if not self._messages:
            return None
        self._received += 1
        return self._messages.popleft()

    def statistics(self) -> MailboxStatistics:
        return MailboxStatistics(len(self._messages), self._received, self._refused)
