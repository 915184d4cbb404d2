"""Sets of field paths in the form of managedFields (FieldsV1), and the difference of two objects as such sets.

A set is a nested dict whose keys are path elements: ``f:name`` a field or map key, ``k:{"name":"c"}`` an item of a
keyed list, ``v:"x"`` an item of a set. A node without keys is a member without children; a node with children is a
member itself only if it holds ``.``:

    {"f:data": {".": {}, "f:a": {}}}       the fields data and data.a
    {"f:spec": {"f:replicas": {}}}         the field spec.replicas, not spec as such

Lives here: set algebra and comparison along structural types, with the rules of structured-merge-diff. Not here: the
owners of sets (managers.py).

Invariants: sets are never changed once built, so they may share nodes. The empty set is ``{}``. The elements of each
node are in order (``path_elements.in_order``), unless a client sent them otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

from kubechronicle.api.managed_fields.path_elements import NoPathElement as NoPathElement
from kubechronicle.api.managed_fields.path_elements import elements_of, in_order, items_by_element
from kubechronicle.api.schema.equality import unchanged
from kubechronicle.api.schema.types import MAP, SET, AnyType, ListType, MapType, ObjectType, Scalar, Type

FieldSet = dict[str, Any]

SELF: Final = "."


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths of either set."""
    if not one:
        return other
    if not other:
        return one
    merged = dict(one)
    for element, node in other.items():
        held = merged.get(element)
        merged[element] = node if held is None else _union_node(held, node)
    return merged if len(merged) == len(one) else in_order(merged)


def _union_node(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one and not other:
        return one
    merged = union(one, other)
    if (not one or not other) and SELF not in merged:
        return {SELF: {}, **merged}
    return merged


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths of ``one`` that are not in ``other``."""
    if not other:
        return one
    rest: FieldSet = {}
    for element, node in one.items():
        without = other.get(element)
        left = node if without is None else _difference_node(node, without)
        if left is not None:
            rest[element] = left
    return rest


def _difference_node(one: FieldSet, other: FieldSet) -> FieldSet | None:
    member = (not one or SELF in one) and not (not other or SELF in other)
    children = {
        element: left
        for element, node in one.items()
        if element != SELF
        and (left := node if (without := other.get(element)) is None else _difference_node(node, without)) is not None
    }
    if not member:
        return children or None
    return {SELF: {}, **children} if children else {}


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths of both sets."""
    both: FieldSet = {}
    for element, node in one.items():
        match = other.get(element)
        if match is None:
            continue
        common = _intersection_node(node, match)
        if common is not None:
            both[element] = common
    return both


def _intersection_node(one: FieldSet, other: FieldSet) -> FieldSet | None:
    member = (not one or SELF in one) and (not other or SELF in other)
    children = {
        element: common
        for element, node in one.items()
        if element != SELF
        and (match := other.get(element)) is not None
        and (common := _intersection_node(node, match)) is not None
    }
    if not member:
        return children or None
    return {SELF: {}, **children} if children else {}


def without_paths(fields: FieldSet, paths: tuple[tuple[str, ...], ...]) -> FieldSet:
    """Return the set without these fields and their descendants. A path is a tuple of field names."""
    for path in paths:
        fields = _without(fields, path)
    return fields


def _without(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    element = f"f:{path[0]}"
    node = fields.get(element)
    if node is None:
        return fields
    rest = dict(fields)
    if len(path) == 1:
        del rest[element]
        return rest
    left = _without(node, path[1:])
    if left or not node:
        rest[element] = left
    else:
        del rest[element]
    return rest


def everything(value: Any, kind: Type) -> FieldSet:
    """Return the node of a value that is wholly new or removed: itself and all its descendants."""
    if not value or value.__class__ not in _CONTAINERS:
        return _LEAF
    return _collector_of(kind)(value)


Collector = Callable[[Any], FieldSet]
"""``everything`` for a non-empty dict or list of one type. A creation passes whole objects through it, so facts about
the type are computed once."""


def _collector_of(kind: Type) -> Collector:
    """Return the collector of a type, made at the first call."""
    collector = kind.collector
    if collector is None:
        collector = kind.collector = _make_collector(kind)
    return collector


def _make_collector(kind: Type) -> Collector:
    if isinstance(kind, ObjectType):
        return _leaf if kind.atomic else _object_collector(kind)
    if isinstance(kind, MapType):
        return _leaf if kind.atomic else _map_collector(kind.value)
    if isinstance(kind, AnyType) and kind.deduced:
        return _map_collector(kind)
    if isinstance(kind, ListType) and kind.list_type in (SET, MAP):
        return _list_collector(kind)
    return _leaf


def _leaf(value: Any) -> FieldSet:
    return _LEAF


def _object_collector(kind: ObjectType) -> Collector:
    """Return a collector that caches sets by field names: objects of one type mostly set the same few fields.

    The sets are shared where no field has descendants.
    """
    fields, other = kind.fields, kind.other
    shapes: dict[tuple[str, ...], _Shape] = {}

    def collect(value: Any) -> FieldSet:
        if value.__class__ is not dict:
            return _LEAF
        names = tuple(value)
        shape = shapes.get(names)
        if shape is None:
            shape = _shape(names, fields, other)
            if len(shapes) < MAX_SHAPES:
                shapes[names] = shape
        template, structured = shape
        if not structured:
            return template
        node = template.copy()
        for name, element, below in structured:
            item = value[name]
            if item and item.__class__ in _CONTAINERS:
                node[element] = (below.collector or _collector_of(below))(item)
        return node

    return collect


_Shape = tuple[FieldSet, list[tuple[str, str, Type]]]
"""The set of an object with certain fields, and (name, element, type) of the fields that may have descendants."""

MAX_SHAPES: Final = 256
"""Cached shapes per type; further shapes are computed each time."""


def _shape(names: tuple[str, ...], fields: dict[str, Any], other: Type | None) -> _Shape:
    template: FieldSet = {SELF: _LEAF}
    for name in sorted(names):
        template["f:" + name] = _LEAF
    structured = ((name, fields[name].type if name in fields else other) for name in names)
    return template, [(name, "f:" + name, below) for name, below in structured if not isinstance(below, Scalar | None)]


def _map_collector(below: Type) -> Collector:
    def collect(value: Any) -> FieldSet:
        if value.__class__ is not dict:
            return _LEAF
        node: FieldSet = {SELF: _LEAF}
        for name in sorted(value) if len(value) > 1 else value:
            item = value[name]
            node["f:" + name] = everything(item, below) if item.__class__ in _CONTAINERS else _LEAF
        return node

    return collect


def _list_collector(kind: ListType) -> Collector:
    keyed = kind.list_type == MAP

    def collect(value: Any) -> FieldSet:
        if value.__class__ is not list:
            return _LEAF
        elements = elements_of(value, kind)
        nodes = map(_collector_of(kind.item), value) if keyed else repeat(_LEAF)
        node: FieldSet = {SELF: _LEAF}
        node.update(zip(elements, nodes, strict=False))
        if len(node) <= len(value):  # items that share a key are owned as one
            node |= {element: _LEAF for element, times in Counter(elements).items() if times > 1}
        return in_order(node) if len(node) > 2 else node

    return collect


def compare(old: dict[str, Any], new: dict[str, Any], kind: ObjectType) -> tuple[FieldSet, FieldSet]:
    """Return (paths added or changed, paths removed) from ``old`` to ``new``. Raises NoPathElement."""
    changed, removed = _compare_fields(old, new, kind.fields, kind.other)
    return changed or {}, removed or {}


def compare_values(old: Any, new: Any, kind: Type) -> tuple[FieldSet | None, FieldSet | None]:
    """Compare two present values; ``None`` stands for no difference."""
    if unchanged(old, new, kind):
        return None, None
    if not old and not new:
        return _LEAF, None  # null became empty or the other way round
    if isinstance(kind, ObjectType):
        if not kind.atomic and _is_map(old) and _is_map(new):
            return _compare_fields(old or {}, new or {}, kind.fields, kind.other)
    elif isinstance(kind, MapType):
        if not kind.atomic and _is_map(old) and _is_map(new):
            return _compare_fields(old or {}, new or {}, None, kind.value)
    elif isinstance(kind, ListType):
        if kind.list_type in (SET, MAP) and _is_list(old) and _is_list(new):
            return _compare_lists(old or [], new or [], kind)
    elif isinstance(kind, AnyType) and kind.deduced and _is_map(old) and _is_map(new):
        return _compare_fields(old or {}, new or {}, None, kind)
    return _compare_forms(old, new, kind)


def _compare_forms(old: Any, new: Any, kind: Type) -> tuple[FieldSet, FieldSet | None]:
    """Compare two different values that are not both maps. A map has descendants, if the type allows other values."""
    if (isinstance(kind, ObjectType) and kind.free) or (isinstance(kind, AnyType) and kind.deduced):
        if new.__class__ is dict:
            return everything(new, kind), None
        if old.__class__ is dict:
            below = {element: node for element, node in everything(old, kind).items() if element != SELF}
            return _LEAF, below or None
    return _LEAF, None


def _is_map(value: Any) -> bool:
    return value is None or value.__class__ is dict


def _is_list(value: Any) -> bool:
    return value is None or value.__class__ is list


def _compare_fields(
    old: dict[str, Any], new: dict[str, Any], fields: dict[str, Any] | None, below: Type | None
) -> tuple[FieldSet | None, FieldSet | None]:
    """Compare maps: ``fields`` gives the types by name, ``below`` the one type of all other values."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name, item in new.items():
        if name in old:
            held = old[name]
            if held.__class__ is item.__class__ and held == item and item.__class__ not in _CONTAINERS:
                continue
            kind = _type_of(name, fields, below)
            more, less = compare_values(held, item, kind)
            if more is not None:
                changed[f"f:{name}"] = more
            if less is not None:
                removed[f"f:{name}"] = less
        elif item and item.__class__ in _CONTAINERS:
            changed[f"f:{name}"] = everything(item, _type_of(name, fields, below))
        else:
            changed[f"f:{name}"] = _LEAF
    for name, held in old.items():
        if name not in new:
            removed[f"f:{name}"] = everything(held, _type_of(name, fields, below))
    return in_order(changed) or None, removed or None


def _type_of(name: str, fields: dict[str, Any] | None, below: Type | None) -> Type:
    field = fields.get(name) if fields is not None else None
    return field.type if field is not None else below or _OPAQUE


def _compare_lists(old: list[Any], new: list[Any], kind: ListType) -> tuple[FieldSet | None, FieldSet | None]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    before, after = items_by_element(old, kind), items_by_element(new, kind)
    keyed = kind.list_type == MAP
    for element, items in after.items():
        held = before.get(element)
        if held is None:
            changed[element] = everything(items[0], kind.item) if keyed and len(items) == 1 else _LEAF
        elif len(held) == 1 and len(items) == 1:
            more, less = compare_values(held[0], items[0], kind.item) if keyed else (None, None)
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
        elif len(held) == 1 or len(items) == 1:  # one item became several, which are owned as one, or the other way
            changed[element] = everything(items[0], kind.item) if keyed and len(items) == 1 else _LEAF
            removed[element] = everything(held[0], kind.item) if keyed and len(held) == 1 else _LEAF
        elif held != items:
            changed[element] = _LEAF
    for element, held in before.items():
        if element not in after:
            removed[element] = everything(held[0], kind.item) if keyed and len(held) == 1 else _LEAF
    return in_order(changed) or None, removed or None


_LEAF: Final[FieldSet] = {}
_OPAQUE: Final = AnyType("interface {}", deduced=False)
_CONTAINERS: Final = frozenset((dict, list))
