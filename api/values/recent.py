"""A bounded memory of what was computed last, by its input.

Two generations: when the younger one is full, it becomes the older one, and that is forgotten. An entry that is used
moves to the younger one. Several threads may use it at once: none of its steps leaves it inconsistent, and an entry
that is lost is computed again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """``weight``: the most of one generation. The weights of entries are the caller's, such as bytes."""

    __slots__ = ("__weakref__", "_former", "_most", "_now", "_weight")

    def __init__(self, weight: int) -> None:
        self._most: Final = weight
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._weight = 0
        self._now: dict[Key, tuple[Value, int]] = {}
        self._former: dict[Key, tuple[Value, int]] = {}

    def __len__(self) -> int:
        return len(self._now) + len(self._former)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, None if it was never added or is forgotten."""
        found = self._now.get(key)
        if found is None:
            found = self._former.get(key)
            if found is None:
                return None
            self.add(key, *found)
        return found[0]

    def add(self, key: Key, value: Value, weight: int = 1) -> None:
        """Remember a value, unless it alone weighs more than a generation may."""
        if weight > self._most:
            return
        if self._weight + weight > self._most:
            self._former, self._now, self._weight = self._now, {}, 0
        self._now[key] = (value, weight)
        self._weight += weight
