"""Unordered lists: the values of schemas with x-kubernetes-list-type set or map.

Two are equal if they have the same elements. ``X + Y`` is the union or merge: X keeps its places, an element of Y with
a key of X takes that place, and the others follow (KEP-2876).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubechronicle.api.cel.operations.equality import equal


class KeyedList(list[Any]):
    """A list with keys: the fields ``keys`` of its objects, or the elements themselves if there are no names."""

    __slots__ = ("keys",)

    def __init__(self, elements: Sequence[Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> Any:
        """Return the key of an element, hashable."""
        if not self.keys:
            return _hashable(element)
        return tuple(_hashable(element.get(name)) for name in self.keys) if isinstance(element, dict) else None

    def cel_equal(self, other: Sequence[Any]) -> bool:
        """Return whether another list has equal elements in any order."""
        if len(self) != len(other):
            return False
        mine = {self.key_of(element): element for element in self}
        return all((key := self.key_of(element)) in mine and equal(mine[key], element) for element in other)

    def cel_add(self, other: Sequence[Any]) -> KeyedList:
        """Return the union with, or the merge of, another list."""
        merged = list(self)
        places = {self.key_of(element): place for place, element in enumerate(merged)}
        for element in other:
            place = places.setdefault(self.key_of(element), len(merged))
            if place == len(merged):
                merged.append(element)
            elif self.keys:
                merged[place] = element
        return KeyedList(merged, self.keys)


def _hashable(value: Any) -> Any:
    # For Python, True equals 1; for CEL it does not.
    if isinstance(value, bool):
        return (bool, value)
    return value if value is None or isinstance(value, (str, int, float, bytes)) else repr(value)
