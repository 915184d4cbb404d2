"""A bounded TTL cache that evicts the least recently used entries."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kubechronicle.api.values.caches import kept_in_order

T = TypeVar("T")


class TtlCache(Generic[T]):
    """At most ``size`` entries. ``clock``: monotonic, in seconds."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, T]] = kept_in_order("answers of webhooks")

    def get(self, key: Hashable) -> T | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        until, value = entry
        if self._clock() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: T, seconds: float) -> None:
        """Cache a value for ``seconds``; for 0, only drop the former value."""
        self._entries.pop(key, None)
        if seconds <= 0:
            return
        while len(self._entries) >= self._size:
            self._entries.popitem(last=False)
        self._entries[key] = (self._clock() + seconds, value)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
