"""Pruning: unknown fields, and nulls where none may stand, are removed.

After apiextensions-apiserver ``pkg/apiserver/schema/pruning`` and ``defaulting/prunenulls.go``. A field is unknown if
its level has neither a property of its name nor additionalProperties. Levels with
x-kubernetes-preserve-unknown-fields keep unknown fields, and prune below the known ones. The type and metadata of the
root and of embedded resources stay: embedded.py checks them.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.custom.schema.bounds import BoundedPaths
from kubechronicle.api.custom.schema.structure import CONTAINERS, SchemaNode, Where, child, index

_VISITED: Final = frozenset((dict, list, type(None)))
"""The classes of values of which something may be removed."""

META_FIELDS: Final = frozenset(("apiVersion", "kind", "metadata"))


def prune(obj: dict[str, Any], root: SchemaNode) -> list[str]:
    """Remove unknown fields and forbidden nulls of an object, in place. Return the fields' sorted paths."""
    pruning = _Pruning(nulls=True)
    pruning.fields(obj, root, None, resource=True)
    return sorted(pruning.unknown.found)


def prune_value(value: Any, node: SchemaNode) -> list[str]:
    """Remove unknown fields of a default, in place, but no nulls. Return their paths."""
    pruning = _Pruning(nulls=False)
    if value.__class__ in CONTAINERS:
        pruning.value(value, node, None)
    return pruning.unknown.found


class _Pruning:
    """One walk, with the paths of the unknown fields. ``nulls``: remove nulls that may not stand."""

    __slots__ = ("nulls", "unknown")

    def __init__(self, *, nulls: bool) -> None:
        self.unknown = BoundedPaths()
        self.nulls = nulls

    def value(self, value: Any, node: SchemaNode | None, where: Where) -> None:
        """Prune an object or list. Without a schema, all fields are unknown."""
        if value.__class__ is dict:
            if node is None:
                for name in value:
                    self.unknown.add(child(where, name))
                value.clear()
            else:
                self.fields(value, node, where, resource=node.embedded)
            return
        if node is not None and node.preserve:
            self._preserved(value, node, where)
            return
        below = None if node is None else node.items
        for position, item in enumerate(value):
            if item.__class__ in CONTAINERS:
                self.value(item, below, index(where, position))

    def _preserved(self, value: Any, node: SchemaNode | None, where: Where) -> None:
        """Prune below the known fields only."""
        if node is None:
            return
        if value.__class__ is dict:
            self.fields(value, node, where, resource=node.embedded, preserve=True)
        else:
            for position, item in enumerate(value):
                if item.__class__ in CONTAINERS:
                    self._preserved(item, node.items, index(where, position))

    def fields(
        self, value: dict[str, Any], node: SchemaNode, where: Where, *, resource: bool, preserve: bool = False
    ) -> None:
        """Prune an object by its schema. ``resource``: its type and metadata stay."""
        known, additional, is_open, nulls = node.properties, node.additional, node.open, self.nulls
        preserve = preserve or node.preserve
        drop: list[str] = []
        for name, item in value.items():
            below = known.get(name)
            if below is not None and item.__class__ not in _VISITED:
                continue
            if resource and name in META_FIELDS:
                if item is None and nulls and below is not None and below.null_falls:
                    drop.append(name)
                continue
            if below is None:
                if not is_open:
                    if not preserve:
                        drop.append(name)
                        self.unknown.add(child(where, name))
                    continue
                below = additional
            if item.__class__ in CONTAINERS:
                self.value(item, below, child(where, name))
            elif item is None and nulls and below is not None and below.null_falls:
                drop.append(name)
        for name in drop:
            del value[name]
