"""A bounded mailbox: the only way into an actor.

It outlives the actor's incarnations: messages in it when the actor crashes are handled by the next one. Messages are
received in the order of their arrival, by one task. Any task of the same trio run may send.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from kubechronicle.actors.errors import MailboxFull
from kubechronicle.eventlog.waking import WOKEN

M = TypeVar("M")

DEFAULT_CAPACITY = 4096
"""Several times the requests that --max-mutating-requests-inflight admits. More would turn overload into timeouts."""


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """Messages ``waiting`` now; ``received`` and ``refused`` since start."""

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
        """Put a message in the mailbox. MailboxFull: it is at its capacity.

        ``reserved``: never reject the message: it answers a request of the actor, which bounds their number.
        """
        if len(self._messages) >= self._capacity and not reserved:
            self._refused += 1
            raise MailboxFull(self._owner, self._capacity)
        self._messages.append(message)
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader, WOKEN)
            self._reader = None

    @property
    def idle(self) -> bool:
        """True while the reader sleeps on an empty mailbox: it would handle a message put now before any other."""
        return self._reader is not None

    async def wait_not_empty(self) -> None:
        """Return once a message is in the mailbox. One reader only."""
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
        """Remove and return the oldest message, or None."""
        if not self._messages:
            return None
        self._received += 1
        return self._messages.popleft()

    def statistics(self) -> MailboxStatistics:
        return MailboxStatistics(len(self._messages), self._received, self._refused)
