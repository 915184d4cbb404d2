"""MemoryClaims: the claim of log.py to append alone, in memory, and faults of it for tests."""

from __future__ import annotations

import trio

from kubechronicle.eventlog.errors import NotSoleAppender
from kubechronicle.eventlog.log import Claim
from kubechronicle.eventlog.memory.faults import FaultInjection
from kubechronicle.eventlog.memory.store import MemoryStore


class MemoryClaims(FaultInjection):
    """A part of MemoryLog. Tests break its connection with ``disconnect``, and prevent claims with
    ``shared_appenders``."""

    store: MemoryStore

    def __init__(self) -> None:
        super().__init__()
        self.newest_seen_revision = 0
        self.shared_appenders = 0
        self._connection = 0
        self._claim_in_doubt = trio.Event()

    async def claim(self) -> Claim | None:
        await self._enter("claim")
        if self.shared_appenders or self.store.sole not in (None, self):
            if self.store.sole is self:
                self.store.sole = None
            return None
        self.store.sole = self
        head, connection = self.store.head(), self._connection
        self.newest_seen_revision = max(self.newest_seen_revision, head.revision)
        return Claim(head, lambda: self._connection == connection)

    async def wait_claim_in_doubt(self) -> None:
        await self._claim_in_doubt.wait()
        self._claim_in_doubt = trio.Event()

    def check_may_append(self) -> None:
        if self.store.sole not in (None, self):
            raise NotSoleAppender("another server alone appends to this log")

    # Faults

    def doubt_claim(self) -> None:
        """Let ``wait_claim_in_doubt`` return."""
        self._claim_in_doubt.set()

    def disconnect(self) -> None:
        """Lose the connection that made the claim; the claim stays in the store."""
        self._connection += 1
