"""Equality of JSON values, for the fields that hold arbitrary JSON.

In Python, ``1 == True == 1.0``. A checked value of a typed field has one class only, so ``==`` is enough for it, and
cheaper. Arbitrary JSON needs ``same_json``.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import orjson

from kubechronicle.api.schema.types import AnyType, ListType, MapType, ObjectType, Type, object_type
from kubechronicle.api.values.objects import whole

_CONTAINERS: Final = frozenset((dict, list))


def same_json(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: true is not 1, and 1 is not 1.0. The order of keys is irrelevant."""
    return one is other or (bool(one == other) and same_classes(one, other))


def _same_text(one: Any, other: Any) -> bool:
    """Return whether two objects or lists have the same JSON text, which is quicker than a walk through both."""
    try:
        return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        return False


def _differing(one: Any, other: Any, levels: int = 2) -> tuple[Any, Any]:
    """Return two equal values without the members that both share, down to a number of levels."""
    if one.__class__ is not dict or other.__class__ is not dict:
        return one, other
    left: dict[str, Any] = {}
    right: dict[str, Any] = {}
    for name, item in one.items():
        beside = other[name]
        if item is not beside:
            left[name], right[name] = _differing(item, beside, levels - 1) if levels > 1 else (item, beside)
    return left, right


def same_classes(one: Any, other: Any) -> bool:
    """Return whether the parts of two equal values have the same classes."""
    if one is other:
        return True
    one, other = _differing(one, other)
    if one is other or (one.__class__ in _CONTAINERS and _same_text(one, other)):
        return True
    return _same_classes(one, other)


def _same_classes(one: Any, other: Any) -> bool:
    if one.__class__ is not other.__class__:
        return False
    if one.__class__ is dict:
        return all(_same_classes(value, other[name]) for name, value in one.items())
    return one.__class__ is not list or all(map(_same_classes, one, other))


def unchanged(old: Any, new: Any, kind: Type) -> bool:
    """Return whether two checked values of a type are equal to field managers. In custom resources, 1 is 1.0."""
    if old is new:  # an apply keeps the parts of the live object that it does not change
        return True
    if kind.custom:
        if old != new:
            return False
        old, new = _differing(old, new)
        return (old.__class__ in _CONTAINERS and _same_text(old, new)) or _same_kinds(old, new)
    return bool(old == new) and (not holds_json(kind) or same_classes(old, new))


def _same_kinds(one: Any, other: Any) -> bool:
    """Return whether the parts of two equal values have the same classes; integers and other numbers are one class."""
    if one.__class__ is not other.__class__:
        return one.__class__ is not bool and other.__class__ is not bool
    if one.__class__ is dict:
        return all(_same_kinds(value, other[name]) for name, value in one.items())
    return one.__class__ is not list or all(map(_same_kinds, one, other))


def holds_json(kind: Type) -> bool:
    """Return whether values of a type hold arbitrary JSON. Field managers' own field sets do not count."""
    known = kind.json
    if known is None:
        known = kind.json = _reaches_json(kind, set())
    return known


def _reaches_json(kind: Type, visited: set[str]) -> bool:
    if isinstance(kind, AnyType):
        return kind.go_type != "v1.FieldsV1"
    if isinstance(kind, ListType):
        return _reaches_json(kind.item, visited)
    if isinstance(kind, MapType):
        return _reaches_json(kind.value, visited)
    if not isinstance(kind, ObjectType) or kind.definition in visited:
        return False
    visited.add(kind.definition)
    return any(_reaches_json(field.type, visited) for field in kind.fields.values())


# -- free fields -------------------------------------------------------------------------------------------------------
#
# Fields of an object that hold any JSON, in the form in which Go encodes it.
#
# A strategic merge patch, an apply and YAML decode the whole object and encode it again: keys become sorted, and whole
# numbers lose their fraction. Other writes keep the order of such a field. Only ControllerRevision compares it.


@functools.cache
def _names(definition: str) -> tuple[str, ...]:
    fields = object_type(definition).fields
    return tuple(name for name, field in fields.items() if isinstance(field.type, AnyType))


def encode_again(obj: dict[str, Any], definition: str) -> None:
    """Bring the free fields of an object into the form of Go's encoder, in place."""
    for name in _names(definition):
        if name in obj:
            obj[name] = encoded(obj[name])


def encoded(value: Any) -> Any:
    """Return a JSON value in the form of Go's encoder."""
    if value.__class__ is dict:
        return {name: encoded(value[name]) for name in sorted(value)}
    if value.__class__ is list:
        return [encoded(item) for item in value]
    return whole(value)
