"""Structural defaulting (apiextensions-apiserver ``pkg/apiserver/schema/defaulting``).

A field that is absent gets its default, and so does a null where null is not allowed. Defaults of fields within an
inserted default apply, too. Not here: nulls without a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.custom.schema.failures import BoundedPaths
from kubechronicle.api.custom.schema.structure import CONTAINERS, SchemaNode, Where, child, index
from kubechronicle.api.meta.encoding import copy_object, size_of
from kubechronicle.api.values.allowance import ALLOWANCE

MAX_FILLED: Final = 200_000
"""The most values that defaults may add to one object. An object of few bytes could grow to many gigabytes: a list of
100,000 empty items, each with 10,000 defaults. etcd takes no such object; here the request fails before it exists."""


FEW_LEFT: Final = MAX_FILLED - 2_000
"""Values that may still be added to an object once it counts as large: its rules take 10 ms."""


class TooManyDefaultsError(ValueError):
    """An object that its defaults make too large."""


class Filler:
    """One walk that sets defaults, with the number of values it may still add."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_FILLED

    def fill(self, value: Any, node: SchemaNode) -> None:
        """Set the defaults below a value, in place."""
        if value.__class__ is dict:
            for name, filler in node.fillers:
                if name not in value or (value[name] is None and not filler.nullable):
                    value[name] = self._copy(filler.default)
            for name, below in node.default_fields:
                item = value.get(name)
                if item.__class__ in CONTAINERS:
                    self.fill(item, below)
            additional = node.additional
            if additional is not None and (additional.has_default or additional.deep_defaults):
                self._fill_others(value, node.properties, additional)
        elif value.__class__ is list and node.items is not None:
            below = node.items
            if below.has_default and not below.nullable:
                for position, item in enumerate(value):
                    if item is None:
                        value[position] = self._copy(below.default)
            if below.deep_defaults:
                for item in value:
                    if item.__class__ in CONTAINERS:
                        self.fill(item, below)

    def _fill_others(self, value: dict[str, Any], properties: Mapping[str, SchemaNode], below: SchemaNode) -> None:
        """Set the defaults of and below the fields without a property."""
        for name, item in value.items():
            if name in properties:
                continue
            if item is None and not below.nullable and below.has_default:
                value[name] = item = self._copy(below.default)
            if below.deep_defaults and item.__class__ in CONTAINERS:
                self.fill(item, below)

    def _copy(self, default: Any) -> Any:
        self.left -= 1
        if default.__class__ in CONTAINERS:
            self.left -= _size(default)
        if self.left < FEW_LEFT:
            ALLOWANCE.get().grow()
        if self.left < 0:
            raise TooManyDefaultsError(f"the defaults of the schema add more than {MAX_FILLED} values to the object")
        return copy_object(default) if default.__class__ in CONTAINERS else default


def most_added(node: SchemaNode) -> int:
    """Return the bytes of the defaults that one object or list item may get at most, at any level of a schema."""
    own = sum(len(name) + _bytes(filler.default) for name, filler in node.fillers)
    below = [*node.properties.values(), *(each for each in (node.additional, node.items) if each is not None)]
    return max(
        own, _bytes(node.default), *(most_added(each) for each in below if each.has_default or each.deep_defaults)
    )


def _bytes(default: Any) -> int:
    return size_of(default) + len('"":,')


def _size(value: Any) -> int:
    """Return the number of values within a value."""
    if value.__class__ is dict:
        return len(value) + sum(_size(item) for item in value.values() if item.__class__ in CONTAINERS)
    return len(value) + sum(_size(item) for item in value if item.__class__ in CONTAINERS)


# -- pruning -----------------------------------------------------------------------------------------------------------
#
# Pruning: unknown fields, and nulls where none may stand, are removed.
#
# After apiextensions-apiserver ``pkg/apiserver/schema/pruning`` and ``defaulting/prunenulls.go``. A field is unknown if
# its level has neither a property of its name nor additionalProperties. Levels with
# x-kubernetes-preserve-unknown-fields keep unknown fields, and prune below the known ones. The type and metadata of the
# root and of embedded resources stay: embedded.py checks them.


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
