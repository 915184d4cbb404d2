"""Lists of which the order does not count: x-kubernetes-list-type set and map, as values in CEL.

Two are equal if they have the same elements, and ``X + Y`` is the union or the merge: the places of X are kept,
elements of Y with a key of X take that place, the others follow (KEP-2876).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubechronicle.api.cel.operations.equality import equal


class KeyedList(list[Any]):
    """A list with keys: the fields named by ``keys`` of objects, or else (no names) the scalars themselves."""

    __slots__ = ("keys",)

    def __init__(self, elements: Sequence[Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> Any:
        """Return what tells an element from the others; it can be a key of a dict."""
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
    # True is 1 for Python, and not for CEL.
    if isinstance(value, bool):
        return (bool, value)
    return value if value is None or isinstance(value, (str, int, float, bytes)) else repr(value)
