"""The stored items of a list, for rules that compare an item with its stored value."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from kubechronicle.api.custom.schema.ratcheting import identity


class StoredItems:
    """The items of a list of type map by their keys; of two with the same keys, the first one.

    Other lists have none: only items with keys are compared (KEP-2876, transition rules).
    """

    __slots__ = ("_items", "_keys")

    def __init__(self, schema: Mapping[str, Any], items: Any) -> None:
        """``items``: the stored value, of any type."""
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
        """Return the stored item with the keys of ``item``, None if there is none."""
        key = self._key(item) if self._items else None
        return None if key is None else self._items.get(key)

    def _key(self, item: Any) -> Hashable | None:
        return identity(item, self._keys) if self._keys else None
