"""A bounded memory of texts and the values that they were decoded to, in both directions.

Two generations: when the younger one is full, it becomes the older one, and that is forgotten. A text that is looked up
moves to the younger one. Several threads may use it at once.

Invariant: the values never change, so their readers share them.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")


class _TextGeneration(Generic[Value]):
    """Values by their text, and texts by the identity of their value, which lives as long as the generation."""

    __slots__ = ("by_identity", "by_text", "weight")

    def __init__(self) -> None:
        self.by_text: dict[bytes, Value] = {}
        self.by_identity: dict[int, tuple[Value, bytes]] = {}
        self.weight = 0


class KnownTexts(Generic[Value]):
    """``weight``: the most bytes of the texts of one generation."""

    __slots__ = ("__weakref__", "_former", "_most", "_now")

    def __init__(self, weight: int) -> None:
        self._most: Final = weight
        self.forget()

    def forget(self) -> None:
        """Forget everything."""
        self._now: _TextGeneration[Value] = _TextGeneration()
        self._former: _TextGeneration[Value] = _TextGeneration()

    def __len__(self) -> int:
        return len(self._now.by_text) + len(self._former.by_text)

    def get(self, text: bytes) -> Value | None:
        """Return the value of a text; None if it was never added or is forgotten."""
        value = self._now.by_text.get(text)
        if value is None:
            value = self._former.by_text.get(text)
            if value is not None:
                self.add(text, value)
        return value

    def add(self, text: bytes, value: Value) -> None:
        """Remember a text and its value."""
        if self._now.weight > self._most:
            self._former, self._now = self._now, _TextGeneration()
        self._now.by_text[text] = value
        self._now.by_identity[id(value)] = value, text
        self._now.weight += len(text)

    def text_of(self, value: Any) -> bytes | None:
        """Return the text of this very value; None if it is not known."""
        key = id(value)
        found = self._now.by_identity.get(key) or self._former.by_identity.get(key)
        return found[1] if found is not None and found[0] is value else None
