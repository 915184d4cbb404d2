"""Ratcheting: an update tolerates errors of values that it does not change (CRDValidationRatcheting).

After apiserver ``pkg/cel/common/equality.go`` and apiextensions-apiserver ``pkg/apiserver/validation/ratcheting.go``.
A value of the new object is correlated with one of the old object: by the name of a field, or by the keys of an item of
a list of type map. Items of other lists are not correlated: such a list is equal as a whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from kubechronicle.api.custom.schema.structure import SchemaNode
from kubechronicle.api.schema.equality import same_json


class Correlated:
    """A new value beside the old value that it replaces."""

    __slots__ = ("_children", "_equal", "_old_items", "node", "old", "value")

    def __init__(self, value: Any, old: Any, node: SchemaNode) -> None:
        self.value = value
        self.old = old
        self.node = node
        self._children: dict[str | int, Correlated] = {}
        self._equal: bool | None = None
        self._old_items: dict[Hashable, Any] | None = None

    def field(self, name: str) -> Correlated | None:
        """Return the correlated field, None if it is new or has no schema."""
        known = self._children.get(name)
        if known is not None:
            return known
        value, old = self.value, self.old
        if value.__class__ is not dict or old.__class__ is not dict or name not in value or name not in old:
            return None
        node = self.node.field(name)
        if node is None:
            return None
        found = self._children[name] = Correlated(value[name], old[name], node)
        return found

    def item(self, position: int) -> Correlated | None:
        """Return the correlated item, None if it is new or the list is not of type map."""
        known = self._children.get(position)
        if known is not None:
            return known
        node, value = self.node, self.value
        if node.list_type != "map" or self.old.__class__ is not list or value.__class__ is not list:
            return None
        if self._old_items is None:
            self._old_items = _keyed(self.old, node.map_keys) if node.type == "array" else {}
        keys = identity(value[position], node.map_keys)
        old = None if keys is None else self._old_items.get(keys)
        if old is None or node.items is None:
            return None
        found = self._children[position] = Correlated(value[position], old, node.items)
        return found

    def equal(self) -> bool:
        """Return whether the value is unchanged. The order of the items of a list of type map does not matter."""
        if self._equal is not None:
            return self._equal
        value, old = self.value, self.old
        children: Iterable[Correlated | None] = ()
        equal = value.__class__ is old.__class__
        if equal and value.__class__ is dict:
            equal, children = len(value) == len(old), map(self.field, value)
        elif equal and value.__class__ is list and self.node.list_type == "map":
            equal, children = len(value) == len(old), map(self.item, range(len(value)))
        elif equal:
            equal = same_json(old, value)
        if equal:
            for child in children:  # a loop, not all(): an object may be nested as deep as the stack allows
                if child is None or not child.equal():
                    equal = False
                    break
        self._equal = equal
        return equal


class StoredItems:
    """The items of a list of type map by their keys; of two with the same keys, the first one.

    Other lists have none: only items with keys are compared (KEP-2876, transition rules).
    """

    __slots__ = ("_items", "_keys")

    def __init__(self, schema: Mapping[str, Any], items: Any) -> None:
        """``items``: the stored value, of any type."""
        is_map = schema.get("type") == "array" and schema.get("x-kubernetes-list-type") == "map"
        self._keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map and type(items) is list else ()
        self._items = _keyed(items, self._keys)

    def get(self, item: Any) -> Any:
        """Return the stored item with the keys of ``item``, None if there is none."""
        keys = identity(item, self._keys) if self._items else None
        return None if keys is None else self._items.get(keys)


def _keyed(items: Sequence[Any], keys: Sequence[str]) -> dict[Hashable, Any]:
    """Return the items that have an identity by it; none without keys."""
    keyed: dict[Hashable, Any] = {}
    if keys:
        for item in items:
            known = identity(item, keys)
            if known is not None:
                keyed.setdefault(known, item)
    return keyed


def identity(item: Any, keys: Sequence[str]) -> Hashable | None:
    """Return the identity of an item of a list of type map; None if a key is absent or no scalar."""
    if item.__class__ is not dict:
        return None
    parts = []
    for name in keys:
        value = item.get(name)
        if value is None or value.__class__ in (dict, list):
            return None
        parts.append((value.__class__, f"{value:f}" if value.__class__ is float and len(keys) > 1 else value))
    return tuple(parts)
