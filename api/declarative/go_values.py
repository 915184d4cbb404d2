"""Values as JSON has them, seen as values of their Go types: zero values, equality, keys of items, and their print.

Equality is that of apimachinery's ``equality.Semantic``: an empty list or map equals one that is not there, a quantity
another spelling of it. A pointer to an empty struct differs from none: ``{}`` and an absent ``basic`` are two modes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from kubechronicle.api.declarative.rules import Identity, IsSet, Same, is_there
from kubechronicle.api.kinds.reading import LIST, MAP, POINTER, Declared, GoType, KindField, PublishedRelease
from kubechronicle.api.values import quantity

NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "bool": False, "float64": 0.0, "interface{}": None}
_QUANTITY: Final = "resource.Quantity"


def native(release: PublishedRelease, kind: GoType) -> GoType:
    """Return the type behind names, but not behind a pointer."""
    while "." in kind.name and not (declared := release.declared(kind.name)).is_struct:
        kind = declared.behind
    return kind


def struct_of(release: PublishedRelease, kind: GoType) -> Declared | None:
    """Return the struct behind names and pointers, if it is one whose fields JSON has."""
    behind = release.behind(kind)
    if "." not in behind.name:
        return None
    declared = release.declared(behind.name)
    return None if "decodes" in declared.marks else declared


def zero(release: PublishedRelease, kind: GoType) -> Any:
    """Return the value of a field that JSON lacks."""
    behind = native(release, kind)
    if behind.shape == LIST:
        return ()
    if behind.shape == MAP:
        return NO_FIELDS
    if behind.shape == POINTER:
        return None
    if "." in behind.name:
        return None if struct_of(release, behind) is None else NO_FIELDS
    return _ZEROS.get(behind.name, 0)


def is_set(release: PublishedRelease, kind: GoType) -> IsSet:
    """Return the function that tells whether a value of the type is set."""
    return is_there if zero(release, kind) is None else bool


def member(release: PublishedRelease, field: KindField) -> tuple[str, Any, IsSet]:
    """Return the name of a field, its zero value, and the function that tells whether a value of it is set."""
    return field.name, zero(release, field.type), is_set(release, field.type)


def same(release: PublishedRelease, kind: GoType) -> Same:
    """Return the equality of values of the type. Equal ones cost one comparison."""
    behind = native(release, kind)
    if behind.shape == "" and "." not in behind.name:
        return lambda one, other: bool(one == other)
    return lambda one, other: bool(one == other) or _same(release, behind, one, other)


def _same(release: PublishedRelease, kind: GoType, one: Any, other: Any) -> bool:
    kind = native(release, kind)
    if kind.shape == POINTER and kind.of is not None:
        return one is not None and other is not None and _same(release, kind.of, one, other)
    if kind.shape == LIST and kind.of is not None:
        of, one, other = kind.of, one or (), other or ()
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(left == right or _same(release, of, left, right) for left, right in pairs)
    if kind.shape == MAP and kind.of is not None:
        of, one, other = kind.of, one or NO_FIELDS, other or NO_FIELDS
        return one.keys() == other.keys() and all(
            one[key] == other[key] or _same(release, of, one[key], other[key]) for key in one
        )
    if kind.name == _QUANTITY and isinstance(one, str) and isinstance(other, str):
        return quantity.parse(one)[0] == quantity.parse(other)[0]
    declared = struct_of(release, kind)
    if declared is None:
        return bool(one == other)
    return _same_fields(release, declared, one or NO_FIELDS, other or NO_FIELDS)


def _same_fields(
    release: PublishedRelease, declared: Declared, one: Mapping[str, Any], other: Mapping[str, Any]
) -> bool:
    for name, (field, _) in declared.members.items():
        left, right = one.get(name), other.get(name)
        if left == right:
            continue
        absent = zero(release, field.type)
        left, right = absent if left is None else left, absent if right is None else right
        if left != right and not _same(release, field.type, left, right):
            return False
    return True


def keyed(release: PublishedRelease, declared: Declared, names: Sequence[str]) -> Identity:
    """Return the keys of an item of a list: the values of these fields."""
    absent = [(name, zero(release, declared.members[name][0].type)) for name in names]
    if len(absent) == 1:
        only, without = absent[0]
        return lambda item: (item or NO_FIELDS).get(only, without)
    return lambda item: tuple((item or NO_FIELDS).get(name, without) for name, without in absent)


def whole(item: Any) -> Hashable:
    """Return an item that is its own key."""
    return item if isinstance(item, Hashable) else orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


def shown(release: PublishedRelease, kind: GoType, value: Any) -> Any:
    """Return a value as Go's encoding/json writes it: fields in Go's order, with zero values that are not omitted."""
    kind = release.behind(kind)
    if isinstance(value, list | tuple) and kind.of is not None:
        return [shown(release, kind.of, item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if kind.shape == MAP and kind.of is not None:
        return {key: shown(release, kind.of, value[key]) for key in sorted(value)}
    declared = struct_of(release, kind)
    return value if declared is None else _shown_fields(release, declared, value)


def _shown_fields(release: PublishedRelease, declared: Declared, value: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (field, _) in declared.members.items():
        kind, absent = native(release, field.type), zero(release, field.type)
        given = value.get(name, "0" if kind.name == _QUANTITY else absent)
        is_struct = kind.shape == "" and "." in kind.name
        is_empty = given is None if kind.shape == POINTER else not given
        if is_empty and (field.omitzero or (field.omitempty and not is_struct)):
            continue
        is_nil = given is absent and kind.shape in (LIST, MAP)
        made[name] = None if is_nil else shown(release, field.type, given)
    return made
