"""Correlation of the parts of an object with those of the stored object, for rules and for unchanged invalid values.

Fields and map entries correlate by name, items of lists of type map by their keys, other items not at all.
Source: k8s.io/apiserver ``pkg/cel/common/{equality,maplist}.go``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from kubechronicle.api.schema.equality import same_json

_SCALARS: Final = (str, bool, int, float)


class KeyedItems:
    """The items of a list of type map by their keys; of two with the same keys, the first one."""

    __slots__ = ("_items", "_keys")

    def __init__(self, schema: Mapping[str, Any], items: Any) -> None:
        """``items``: of another type than a list, or of a list without keys, there are none."""
        self._keys: tuple[str, ...] = ()
        self._items: dict[Hashable, Any] = {}
        if schema.get("type") != "array" or schema.get("x-kubernetes-list-type") != "map" or type(items) is not list:
            return
        self._keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        for item in items:
            key = self._key(item)
            if key is not None:
                self._items.setdefault(key, item)

    def get(self, item: Any) -> Any:
        """Return the item with the keys of ``item``, None if there is none."""
        key = self._key(item) if self._items else None
        return None if key is None else self._items.get(key)

    def _key(self, item: Any) -> Hashable | None:
        if type(item) is not dict or not self._keys:
            return None
        values = [item.get(key) for key in self._keys]
        if not all(isinstance(value, _SCALARS) for value in values):
            return None
        return tuple((type(value), value) for value in values)


class Pair:
    """A value with its stored value. Pairs of parts are made when they are asked for, and kept."""

    __slots__ = ("_below", "_keyed", "_same", "_schema", "new", "old")

    def __init__(self, new: Any, old: Any, schema: Mapping[str, Any]) -> None:
        self.new = new
        self.old = old
        self._schema = schema
        self._below: dict[str | int, Pair | None] = {}
        self._keyed: KeyedItems | None = None
        self._same: bool | None = None

    def field(self, name: str) -> Pair | None:
        """Return the pair of a field or entry; None if either side lacks it, or the schema does not know it."""
        if name not in self._below:
            self._below[name] = self._field(name)
        return self._below[name]

    def _field(self, name: str) -> Pair | None:
        new, old = self.new, self.old
        if type(new) is not dict or type(old) is not dict or name not in new or name not in old:
            return None
        schema = (self._schema.get("properties") or {}).get(name)
        if schema is None:
            schema = self._schema.get("additionalProperties")
        return Pair(new[name], old[name], schema) if isinstance(schema, Mapping) else None

    def item(self, index: int) -> Pair | None:
        """Return the pair of a list's item; None if no stored item has its keys."""
        if index not in self._below:
            self._below[index] = self._item(index)
        return self._below[index]

    def _item(self, index: int) -> Pair | None:
        if type(self.new) is not list or type(self.old) is not list:
            return None
        if self._keyed is None:
            self._keyed = KeyedItems(self._schema, self.old)
        old, schema = self._keyed.get(self.new[index]), self._schema.get("items")
        return None if old is None or not schema else Pair(self.new[index], old, schema)

    @property
    def unchanged(self) -> bool:
        """True if both values are equal. Items of lists of type map may have another order."""
        if self._same is None:
            self._same = self._equal()
        return self._same

    def _equal(self) -> bool:
        new, old = self.new, self.old
        if type(new) is list and type(old) is list:
            if len(new) != len(old):
                return False
            if self._schema.get("x-kubernetes-list-type") != "map":
                return same_json(new, old)
            return all((pair := self.item(index)) is not None and pair.unchanged for index in range(len(new)))
        if type(new) is dict and type(old) is dict:
            if len(new) != len(old):
                return False
            return all((pair := self.field(name)) is not None and pair.unchanged for name in new)
        return same_json(new, old)
