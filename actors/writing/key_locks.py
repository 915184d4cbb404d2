"""Lanes: writes of this replica that are going to change the same key beside their own go one after another.

A quota, for one, is charged by every pod of its namespace. Without a lane a hundred pods at once would be prepared on
the same revision of the quota, and ninety-nine of them refused and prepared again. The log stays the last word: a lane
says nothing about other replicas.

Keys are taken in one order, so that two writes that need the same two never wait for each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Key

_NO_LANES = nullcontext()


class KeyLocks:
    """There are as many lanes as keys in use; ``len`` tells."""

    def __init__(self) -> None:
        self._locks: dict[Key, trio.Lock] = {}

    def hold(self, keys: Sequence[Key], *, deadline: float) -> AbstractAsyncContextManager[None]:
        """Hold the lanes of ``keys``. LogUnavailable if the deadline (trio time) passes first: nothing has happened."""
        return self._hold(keys, deadline) if keys else _NO_LANES

    @asynccontextmanager
    async def _hold(self, keys: Sequence[Key], deadline: float) -> AsyncIterator[None]:
        held: list[tuple[Key, trio.Lock]] = []
        try:
            for key in sorted(keys):
                lock = self._locks.setdefault(key, trio.Lock())
                with trio.move_on_at(deadline) as waiting:
                    await lock.acquire()
                if waiting.cancelled_caught:
                    raise LogUnavailable("the deadline passed before the change was sent")
                held.append((key, lock))
            yield
        finally:
            for key, lock in reversed(held):
                lock.release()
                if not lock.locked():  # nobody waits: trio hands a lock on as it is released
                    self._locks.pop(key, None)

    def __len__(self) -> int:
        return len(self._locks)
