"""The field set of a valid configuration in one walk, by functions that are made once for each type.

A reader returns the members below a value, None for a leaf, and raises ``Odd`` for a value that may be invalid. Then
typed_values.py looks again, which is slower and has the messages:

    {"spec": {"size": 3}}    {"f:spec": {"f:size": {}}}
    {"spec": {"size": []}}   Odd: it may be invalid

Objects of one type mostly have the same few fields, so the set of each combination of names is kept. Sets share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.codecs.yaml import MAX_PLAIN_DEPTH, MAX_PLAIN_KEY, is_plain
from kubechronicle.api.managed_fields import path_elements
from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet
from kubechronicle.api.managed_fields.path_elements import NoPathElement
from kubechronicle.api.patch import typed_values
from kubechronicle.api.schema.types import ATOMIC, AnyType, ListType, MapType, ObjectType, Scalar, Type

MAX_SHAPES: Final = 256
"""Combinations of names that are kept for a type; the sets of others are made each time."""

_LEAF: Final[FieldSet] = {}
_CLASSES: Final[dict[str, type]] = {
    "string": str,
    "bytes": str,
    "boolean": bool,
    "number": int,
    "int32": int,
    "int64": int,
}
"""The class of most values of a kind of scalar, which are valid."""

Reader = Callable[[Any, int], FieldSet | None]
"""(value, number of the levels around it) -> the members below it, None for a leaf."""

_Member = tuple[str, type | None, Reader, bool]
"""(element, class of valid leaves, reader, whether it is declared) of a field that an object has."""


class Odd(Exception):
    """A value that may be invalid, or that libyaml may read differently."""


def read(config: dict[str, Any], kind: ObjectType) -> FieldSet | None:
    """Return ``typed_values.field_set`` of a valid configuration.

    None if it may be invalid, or if a part of it is not plain (codecs/yaml.py). The integers are not looked at.
    """
    try:
        return reader_of(kind)(config, 0) or {}
    except (Odd, NoPathElement):
        return None


def reader_of(kind: Type, *, member: bool = False) -> Reader:
    """Return the reader of a type. ``member``: of items of lists and maps, whose sets have them as members, too."""
    found: Reader | None = kind.member_reader if member else kind.reader
    if found is None:
        found = _make_reader(kind, member=member)
        if member:
            kind.member_reader = found
        else:
            kind.reader = found
    return found


def _make_reader(kind: Type, *, member: bool) -> Reader:
    if isinstance(kind, ObjectType):
        return _object_reader(kind, member=member)
    if isinstance(kind, Scalar):
        return _scalar_reader(kind)
    if isinstance(kind, ListType):
        return _atomic_list_reader(kind) if kind.list_type == ATOMIC else _list_reader(kind, member=member)
    if isinstance(kind, MapType):
        return _map_reader(kind, member=member)
    if isinstance(kind, AnyType):
        return _any_reader(kind, member=member)
    return _refuse


def _refuse(value: Any, depth: int) -> FieldSet | None:
    if value is not None:
        raise Odd
    return None


def class_of(kind: Type) -> type | None:
    """Return the Python class that alone makes a value valid and a leaf, if the type has one."""
    if isinstance(kind, AnyType):
        return str
    return _CLASSES.get(kind.kind, str) if isinstance(kind, Scalar) else None


def _scalar_reader(kind: Scalar) -> Reader:
    def read_scalar(value: Any, depth: int) -> FieldSet | None:
        if value is not None and (typed_values.scalar_problem(value, kind.kind) or not is_plain(value, depth)):
            raise Odd
        return None

    return read_scalar


def _any_reader(kind: AnyType, *, member: bool) -> Reader:
    def read_any(value: Any, depth: int) -> FieldSet | None:
        if not is_plain(value, depth):
            raise Odd
        below = typed_values.members_below(value, kind)
        return {SELF: _LEAF, **below} if member and below else below

    return read_any


def _object_reader(kind: ObjectType, *, member: bool) -> Reader:
    free, atomic = kind.free, kind.atomic
    shapes: dict[tuple[str, ...], tuple[FieldSet, dict[str, _Member]]] = {}

    def read_object(value: Any, depth: int) -> FieldSet | None:
        if value.__class__ is not dict:
            if value is None or (free and is_plain(value, depth)):
                return None
            raise Odd
        if depth > MAX_PLAIN_DEPTH:
            raise Odd
        names = tuple(value)
        shape = shapes.get(names)
        if shape is None:
            shape = _shape(names, kind, member=member)
            if len(shapes) < MAX_SHAPES and kind.fields.keys() >= value.keys():
                shapes[names] = shape
        named, members = shape
        shared = True
        for name, item in value.items():
            element, leaf, below, declared = members[name]
            if item.__class__ is leaf:
                continue
            inner = below(item, depth + 1)
            if inner or (inner is not None and declared and item != {}):
                if shared:
                    named, shared = named.copy(), False
                if inner:
                    named[element] = inner
                else:
                    del named[element]  # it has no members, such as an empty list
        if atomic:
            return None
        return named if shared or not member or len(named) > 1 else _LEAF

    return read_object


def _shape(names: tuple[str, ...], kind: ObjectType, *, member: bool) -> tuple[FieldSet, dict[str, _Member]]:
    """Return the set of an object whose fields are leaves, and its fields. ``Odd`` for an undeclared one."""
    named: FieldSet = {SELF: _LEAF} if member and names else {}
    members: dict[str, _Member] = {}
    for name in sorted(names):
        element = f"f:{name}"
        named[element] = _LEAF
        field = kind.fields.get(name)
        if field is not None:
            members[name] = (element, class_of(field.type), reader_of(field.type), True)
        elif kind.other is None or len(name) > MAX_PLAIN_KEY:
            raise Odd
        else:
            members[name] = (element, class_of(kind.other), reader_of(kind.other, member=True), False)
    return named, members


def _map_reader(kind: MapType, *, member: bool) -> Reader:
    leaf, atomic = class_of(kind.value), kind.atomic
    below = reader_of(kind.value, member=True)

    def read_map(value: Any, depth: int) -> FieldSet | None:
        if value.__class__ is not dict:
            if value is None:
                return None
            raise Odd
        if depth > MAX_PLAIN_DEPTH:
            raise Odd
        named: FieldSet = {SELF: _LEAF} if member and value else {}
        for name in sorted(value) if len(value) > 1 else value:
            if len(name) > MAX_PLAIN_KEY:
                raise Odd
            item = value[name]
            named["f:" + name] = _LEAF if item.__class__ is leaf else below(item, depth + 1) or _LEAF
        return None if atomic else named

    return read_map


def _list_reader(kind: ListType, *, member: bool) -> Reader:
    below = reader_of(kind.item, member=True)

    def read_list(value: Any, depth: int) -> FieldSet | None:
        if value.__class__ is not list:
            if value is None:
                return None
            raise Odd
        if depth > MAX_PLAIN_DEPTH:
            raise Odd
        named: FieldSet = {SELF: _LEAF} if member and value else {}
        for element, item in zip(path_elements.elements_of(value, kind), value, strict=True):
            if element in named:
                raise Odd
            named[element] = below(item, depth + 1) or _LEAF
        return path_elements.in_order(named)

    return read_list


def _atomic_list_reader(kind: ListType) -> Reader:
    leaf = class_of(kind.item)
    below = reader_of(kind.item)

    def read_atomic_list(value: Any, depth: int) -> FieldSet | None:
        if value.__class__ is not list:
            if value is None:
                return None
            raise Odd
        if depth > MAX_PLAIN_DEPTH:
            raise Odd
        for item in value:
            if item.__class__ is not leaf:
                below(item, depth + 1)
        return None

    return read_atomic_list
