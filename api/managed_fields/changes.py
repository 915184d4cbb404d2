"""The changes from one object to another, as far as they concern a set of fields.

A server-side apply asks which of the other managers' fields it changes. Most of them own few fields, or only the maps
around the fields that others own. So the walk goes along their set, not through the objects:

    within  {"f:spec": {".": {}, "f:size": {}}}    looks at spec.size alone; spec stays a map

field_sets.py compares whole objects.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet, compare_values, everything
from kubechronicle.api.managed_fields.path_elements import elements_of
from kubechronicle.api.schema.equality import unchanged
from kubechronicle.api.schema.types import MAP, AnyType, ListType, MapType, ObjectType, Type

_OPAQUE: Final = AnyType("interface {}", deduced=False)
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
