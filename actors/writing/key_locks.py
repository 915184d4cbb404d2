"""Locks on the keys that several writes of this replica change besides their own.

Every new pod charges the ResourceQuota of its namespace. Without a lock, a hundred simultaneous creations would be
prepared on the same revision of the quota; the log would reject ninety-nine, to be prepared again. The locks only save
that work: they say nothing about other replicas, and the log still checks every revision.

Keys are locked in sorted order, so two writes that need the same two keys never deadlock. A write that waits for an
answer from outside gives its locks back meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Key


class KeyLocks:
    """One lock for each key in use; ``len`` is their number."""

    def __init__(self) -> None:
        self._locks: dict[Key, trio.Lock] = {}

    def hold(self, keys: Sequence[Key], *, deadline: float) -> Held:
        """Hold the locks of ``keys``, each listed once, during the block.

        LogUnavailable: the deadline (trio time) passed first, and nothing happened.
        """
        return Held(self._locks, sorted(keys), deadline)

    def __len__(self) -> int:
        return len(self._locks)


class Held:
    """The locks of one write."""

    __slots__ = ("_deadline", "_held", "_keys", "_locks")

    def __init__(self, locks: dict[Key, trio.Lock], keys: Sequence[Key], deadline: float) -> None:
        self._locks, self._keys, self._deadline = locks, keys, deadline
        self._held: list[Key] = []

    async def take(self) -> None:
        """Take all locks. LogUnavailable: the deadline passed first; some may be held."""
        for key in self._keys:
            lock = self._locks.setdefault(key, trio.Lock())
            with trio.move_on_at(self._deadline) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise LogUnavailable("the deadline passed before the change was sent")
            self._held.append(key)

    def release(self) -> None:
        """Give back the locks that are held."""
        while self._held:
            key = self._held.pop()
            lock = self._locks[key]
            lock.release()
            if not lock.locked():  # no task waits: trio passes a released lock to the next waiter at once
                self._locks.pop(key, None)

    async def __aenter__(self) -> None:
        try:
            await self.take()
        except BaseException:
            self.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
