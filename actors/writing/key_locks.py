"""Locks on the keys that several writes of this replica change besides their own.

Every new pod charges the ResourceQuota of its namespace. Without a lock, a hundred simultaneous creations would be
prepared on the same revision of the quota; the log would reject ninety-nine, to be prepared again. The locks only save
that work: they say nothing about other replicas, and the log still checks every revision.

Keys are locked in sorted order, so two writes that need the same two keys never deadlock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Key

_NO_LOCKS = nullcontext()


class KeyLocks:
    """One lock for each key in use; ``len`` is their number."""

    def __init__(self) -> None:
        self._locks: dict[Key, trio.Lock] = {}

    def hold(self, keys: Sequence[Key], *, deadline: float) -> AbstractAsyncContextManager[None]:
        """Hold the locks of ``keys``, each listed once, during the block.

        LogUnavailable: the deadline (trio time) passed first, and nothing happened.
        """
        return self._hold(keys, deadline) if keys else _NO_LOCKS

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
                if not lock.locked():  # no task waits: trio passes a released lock to the next waiter at once
                    self._locks.pop(key, None)

    def __len__(self) -> int:
        return len(self._locks)
