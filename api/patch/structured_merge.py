"""The merge of an applied configuration into an object, and the removal of fields, along structural types.

Both follow structured-merge-diff: the configuration's values win, absent fields stay, and a field set names the fields
to remove. Results may share values with the arguments; values are never changed.

The changes from one object to another, as far as they concern a set of fields.

A server-side apply asks which of the other managers' fields it changes. Most of them own few fields, or only the maps
around the fields that others own. So the walk goes along their set, not through the objects:

    within  {"f:spec": {".": {}, "f:size": {}}}    looks at spec.size alone; spec stays a map

field_sets.py compares whole objects.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from operator import itemgetter, or_
from typing import Any, Final

from kubechronicle.api.managed_fields import path_elements
from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet, compare_values, everything
from kubechronicle.api.managed_fields.path_elements import elements_of
from kubechronicle.api.schema.equality import same_json, unchanged
from kubechronicle.api.schema.types import ATOMIC, MAP, AnyType, ListType, MapType, ObjectType, Scalar, Type

MISSING: Final = object()
"""An absent value, as opposed to null."""

_OPAQUE: Final = AnyType("interface {}", deduced=False)
COMPARED_LEVELS: Final = 3
"""Levels of maps whose members are compared first: most are applied again as they are. At all levels, the time would
grow with the depth."""

FEW: Final = 4
"""Members of a map that are merged one by one as quickly as all at once."""

_LEAVES: Final = frozenset((str, int, bool, float))
"""Classes of values that replace any former value."""


def member_type(kind: Type, name: str) -> Type:
    """Return the type of a member of an object or map."""
    if isinstance(kind, ObjectType):
        field = kind.fields.get(name)
        return kind.other or _OPAQUE if field is None else field.type
    if isinstance(kind, MapType):
        return kind.value
    return kind if isinstance(kind, AnyType) and kind.deduced else _OPAQUE


# -- merge ------------------------------------------------------------------------------------------------------------


def merge(live: Any, applied: Any, kind: Type, depth: int = 0) -> Any:
    """Return ``live`` with the fields of ``applied``. Either may be MISSING; so is an empty result.

    Items of sets and keyed lists have the order of ``applied``; items only in ``live`` keep their position. Raises
    NoPathElement for an item without a name. ``depth``: the maps around both.
    """
    if splits(kind):
        # Null takes the other side's form: it does not empty a map.
        decisive = live if applied is MISSING or applied is None else applied
        if isinstance(decisive, dict):
            left = live if isinstance(live, dict) else {}
            right = applied if isinstance(applied, dict) else {}
            if left or right:
                return _merge_maps(left, right, kind, depth + 1)
    elif isinstance(kind, ListType) and kind.list_type != ATOMIC:
        before = live if isinstance(live, list) else []
        wanted = applied if isinstance(applied, list) else []
        if before or wanted:
            return _merge_lists(before, wanted, kind)
    return live if applied is MISSING else applied


def _merge_maps(live: dict[str, Any], applied: dict[str, Any], kind: Type, depth: int) -> Any:
    if len(applied) > FEW and _LEAVES.issuperset(map(type, applied.values())):
        return {**live, **applied}
    merged = live.copy()
    for name, value in applied.items():
        if value.__class__ in _LEAVES:
            merged[name] = value
            continue
        held = live.get(name, MISSING)
        if depth <= COMPARED_LEVELS and value and same_json(held, value):
            continue
        below = member_type(kind, name)
        if value and value.__class__ is dict is held.__class__ and below.__class__ is ObjectType and not below.atomic:
            found = _merge_maps(held, value, below, depth + 1)
            # A part of the object that stays keeps its identity, so that no later step looks at it.
            merged[name] = held if depth == 1 and same_json(found, held) else found
            continue
        result = merge(held, value, below, depth)
        if result is not MISSING:
            merged[name] = result
        elif name in merged:
            del merged[name]
    return merged or MISSING


def _merge_lists(live: list[Any], applied: list[Any], kind: ListType) -> Any:
    """Merge both lists in one walk.

    An item only in ``live`` stays before its successor there. A shared item takes its position from ``applied``.
    """
    if _in_step(live, applied, kind):
        if splits(kind.item) and _LEAVES.issuperset(map(type, chain.from_iterable(map(dict.values, applied)))):
            return list(map(or_, live, applied))
        pairs = (merge(held, item, kind.item) for held, item in zip(live, applied, strict=True))
        return [item for item in pairs if item is not MISSING] or MISSING
    left, right = path_elements.elements_of(live, kind), path_elements.elements_of(applied, kind)
    wanted = dict(zip(right, applied, strict=True))
    held: dict[str, Any] = {}
    for element, item in zip(left, live, strict=True):
        held[element] = None if element in held else item  # items that share a key are replaced as one
    shared = deque(element for element in right if element in held)
    taken: set[str] = set()
    merged: list[Any] = []

    def take(element: str) -> None:
        taken.add(element)
        merged.append(merge(held.get(element, MISSING), wanted[element], kind.item))
        if shared and shared[0] == element:
            shared.popleft()

    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left):
            element = left[i]
            if element not in wanted:
                merged.append(live[i])
                i += 1
                continue
            if j < len(right) and element == right[j]:
                take(element)
                i, j = i + 1, j + 1
                continue
            if j < len(right) and shared and shared[0] != element:
                i += 1
                continue
            if element in taken:
                i += 1
        if j < len(right):
            take(right[j])
            j += 1
    return [item for item in merged if item is not MISSING] or MISSING


def _in_step(live: list[Any], applied: list[Any], kind: ListType) -> bool:
    """Return whether both lists have the same items by key, in the same order, which is common and quick to see."""
    if len(kind.keys) != 1 or kind.list_type != MAP or len(live) != len(applied):
        return False
    key = itemgetter(kind.keys[0])
    try:
        keys = list(map(key, live))
        return keys == list(map(key, applied)) and len(set(keys)) == len(keys) and set(map(type, keys)) == {str}
    except (TypeError, KeyError, IndexError):  # not objects, or without the key: an element's own rules apply
        return False


# -- removal ----------------------------------------------------------------------------------------------------------


def remove(value: Any, fields: FieldSet, kind: Type) -> Any:
    """Return ``value`` without the members of ``fields``. A list or map that becomes empty is null."""
    if isinstance(kind, ListType):
        if value.__class__ is not list or kind.list_type == ATOMIC:
            return None
        items = []
        for element, item in zip(path_elements.elements_of(value, kind), value, strict=True):
            node = fields.get(element)
            if node is None:
                items.append(item)
            elif node and SELF not in node:
                items.append(remove(item, node, kind.item))
        return items or None
    if value.__class__ is not dict:
        return value
    if not splits(kind):
        return None
    kept = {}
    for name, item in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            kept[name] = item
        elif node and SELF not in node:
            kept[name] = remove(item, node, member_type(kind, name))
    return kept or None


def with_named_fields(fields: FieldSet, kind: Type) -> FieldSet:
    """Return the set, with each declared field that has members below it as a member too.

    Map keys and list items are not declared fields.
    """
    result: FieldSet = {}
    for element, node in fields.items():
        if element == SELF or not node:
            result[element] = node
            continue
        inner = with_named_fields(node, element_type(kind, element))
        declared = isinstance(kind, ObjectType) and element[2:] in kind.fields
        result[element] = {SELF: {}, **inner} if declared and SELF not in inner else inner
    return result


def element_type(kind: Type, element: str) -> Type:
    """Return the type of the value that a path element names."""
    if isinstance(kind, ListType):
        return kind.item
    return member_type(kind, element[2:])


def reconcile(fields: FieldSet, kind: Type) -> FieldSet:
    """Return a set from an older schema in the present one: a field that became atomic is owned as a whole."""
    if not fields or _always_splits(kind):
        return fields
    if _is_atomic(kind):
        return {}
    changed: FieldSet = {}
    for element, node in fields.items():
        if node and element != SELF:
            now = reconcile(node, element_type(kind, element))
            if now is not node:
                changed[element] = now
    return {**fields, **changed} if changed else fields


def _is_atomic(kind: Type) -> bool:
    if isinstance(kind, ListType):
        return kind.list_type == ATOMIC
    return isinstance(kind, ObjectType | MapType) and kind.atomic


def _always_splits(kind: Type) -> bool:
    """Return whether neither a custom type nor one within it is atomic, so that its sets stay as they are.

    Not known of built-in types, which may contain themselves: False.
    """
    known = kind.splits
    if known is None:
        known = kind.splits = _splits(kind)
    return known


def _splits(kind: Type) -> bool:
    if isinstance(kind, AnyType | Scalar):
        return True
    if not kind.custom or _is_atomic(kind):
        return False
    if isinstance(kind, ListType):
        return _always_splits(kind.item)
    if isinstance(kind, MapType):
        return _always_splits(kind.value)
    assert isinstance(kind, ObjectType), kind
    return all(_always_splits(field.type) for field in kind.fields.values()) and (
        kind.other is None or _always_splits(kind.other)
    )


_ABSENT: Final = object()
_SCALARS: Final = frozenset((str, int, bool, float))
NO_FIELDS: Final[dict[str, Any]] = {}


def changes_within(
    old: dict[str, Any], new: dict[str, Any], kind: ObjectType, within: FieldSet
) -> tuple[FieldSet, FieldSet]:
    """Return (paths added or changed, paths removed) from ``old`` to ``new``, which include all those of a set.

    The members of the result that are not in the set may be any. Raises NoPathElement.
    """
    changed: FieldSet = {}
    removed: FieldSet = {}
    _compare_members(old, new, kind, within, changed, removed)
    return changed, removed


def _compare_members(
    old: dict[str, Any], new: dict[str, Any], kind: Type, within: FieldSet, changed: FieldSet, removed: FieldSet
) -> None:
    """Compare the members of two maps, and note their differences."""
    fields = kind.fields if isinstance(kind, ObjectType) else NO_FIELDS
    other = _other_members(kind)
    for element, node in within.items():
        if element == SELF:
            continue
        name = element[2:]
        held, item = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if held is item or (held.__class__ is item.__class__ and item.__class__ in _SCALARS and held == item):
            continue
        field = fields.get(name)
        below = other if field is None else field.type
        if held is _ABSENT:
            changed[element] = everything(item, below)
        elif item is _ABSENT:
            removed[element] = everything(held, below)
        else:
            _compare(element, held, item, below, node, changed, removed)


def _other_members(kind: Type) -> Type:
    """Return the type of the undeclared members of a map."""
    if isinstance(kind, ObjectType):
        return kind.other or _OPAQUE
    return kind.value if isinstance(kind, MapType) else kind


def _compare(
    element: str, old: Any, new: Any, kind: Type, node: FieldSet, changed: FieldSet, removed: FieldSet
) -> None:
    """Compare two present values, and note their differences as those of an element."""
    more: FieldSet | None
    less: FieldSet | None
    if old.__class__ is dict and new.__class__ is dict and splits(kind):
        if not node or (len(node) == 1 and SELF in node):
            return  # it stays a map, and the fields below it do not count
        more, less = {}, {}
        _compare_members(old, new, kind, node, more, less)
        more, less = more or None, less or None
    elif isinstance(kind, ListType) and kind.list_type == MAP and old.__class__ is list and new.__class__ is list:
        more, less = _compare_items(old, new, kind, node)
    else:
        more, less = compare_values(old, new, kind)
    if more is not None:
        changed[element] = more
    if less is not None:
        removed[element] = less


def splits(kind: Type) -> bool:
    """Return whether field managers own the members of maps of a type one by one."""
    if isinstance(kind, ObjectType | MapType):
        return not kind.atomic
    return isinstance(kind, AnyType) and kind.deduced


def _compare_items(
    old: list[Any], new: list[Any], kind: ListType, within: FieldSet
) -> tuple[FieldSet | None, FieldSet | None]:
    """Compare lists whose items have keys, as ``compare_values`` does."""
    if unchanged(old, new, kind):
        return None, None
    before, after = (dict(zip(elements_of(items, kind), items, strict=True)) for items in (old, new))
    if len(before) != len(old) or len(after) != len(new):  # items that share a key are owned as one
        return compare_values(old, new, kind)
    more: FieldSet = {}
    less: FieldSet = {}
    for element, node in within.items():
        if element not in after:
            if element in before:
                less[element] = everything(before[element], kind.item)
        elif element not in before:
            more[element] = everything(after[element], kind.item)
        elif before[element] is not after[element]:
            _compare(element, before[element], after[element], kind.item, node, more, less)
    return more or None, less or None
