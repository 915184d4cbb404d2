"""Validation of an applied configuration, and the set of its fields.

A configuration is a part of an object as the user wrote it: without defaults, nothing dropped, not canonical. It is
checked against its structural type, with the messages of structured-merge-diff, and turned into the set of the fields
that its manager claims. Not here: both in one walk, for configurations without problems (typed_readers.py), the apply
(apply.py), and the merge (structured_merge.py).
"""

from __future__ import annotations

import calendar
import datetime
from typing import Any, Final, NamedTuple

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.managed_fields import path_elements
from kubechronicle.api.managed_fields.field_paths import element_text
from kubechronicle.api.managed_fields.field_sets import SELF, FieldSet
from kubechronicle.api.managed_fields.path_elements import NoPathElement
from kubechronicle.api.patch.strategic_merge import go_map
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.schema.types import (
    ATOMIC,
    AnyType,
    ListType,
    MapType,
    ObjectType,
    Scalar,
    Type,
)

# -- go values ---------------------------------------------------------------------------------------------------------
#
# Values of Go that no JSON document has, and that configurations made by expressions may hold.
#
# A policy's configuration is merged by kube-apiserver as values of Go. Its merge knows only those of JSON.


class GoValue(NamedTuple):
    """A value: its type in Go, and its text in Go's formats ``%v`` and ``%#v``."""

    go_type: str
    printed: str
    syntax: str


NULL = GoValue("structpb.NullValue", "NULL_VALUE", "0")
"""The null of an expression."""


def unsigned(value: int) -> GoValue:
    return GoValue("uint64", str(int(value)), hex(value))


def octets(value: bytes) -> GoValue:
    return GoValue("[]uint8", f"[{' '.join(map(str, value))}]", f"[]uint8{{{', '.join(map(hex, value))}}}")


def duration(nanoseconds: int) -> GoValue:
    minutes, rest = divmod(abs(nanoseconds), 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 10**9:.9f}".rstrip("0").rstrip(".")
    printed = f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    return GoValue("time.Duration", f"-{printed}" if nanoseconds < 0 else printed, str(nanoseconds))


def moment(nanoseconds: int) -> GoValue:
    """Return a time, given as nanoseconds since 1970."""
    seconds, rest = divmod(nanoseconds, 10**9)
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    month = calendar.month_name[at.month]
    numbers = f"{at.day}, {at.hour}, {at.minute}, {at.second}, {rest}"
    return GoValue("time.Time", f"{at} +0000 UTC", f"time.Date({at.year}, time.{month}, {numbers}, time.UTC)")


MAX_DEPTH: Final = 200
"""The limit of schema/check.py, which rejects deeper values."""

_STRING: Final = frozenset(("string", "bytes"))
_NUMERIC: Final = frozenset(("int32", "int64", "number"))
_LEAF: Final[FieldSet] = {}


def validate(config: dict[str, Any], kind: ObjectType) -> list[str]:
    """Return the problems of a configuration, each as ``path: problem``; an empty list if it has none."""
    errors: list[str] = []
    _check(config, kind, "", errors, 0)
    return errors


def misfits(obj: dict[str, Any], kind: ObjectType, *, valid: dict[str, Any] | None = None) -> list[str]:
    """Return the problems for which field managers cannot handle an object.

    ``valid``: a configuration without problems, whose parts need no second look where the object has the same.
    """
    if fits(obj if valid is None else _differing(obj, valid, 2), kind):
        return []
    return [error for error in validate(obj, kind) if not isinstance(error, _Repeated)]


def _differing(obj: dict[str, Any], other: dict[str, Any], levels: int) -> dict[str, Any]:
    """Return an object without lists and maps that another one has, too, down to a number of levels."""
    left: dict[str, Any] = {}
    for name, item in obj.items():
        if item.__class__ is dict or item.__class__ is list:
            beside = other.get(name)
            if same_json(item, beside):
                continue
            if levels > 1 and item.__class__ is dict and beside.__class__ is dict:
                left[name] = _differing(item, beside, levels - 1)
                continue
        left[name] = item
    return left


class _Repeated(str):
    """The problem of a repeated item, which only a configuration must not have."""

    __slots__ = ()


def explain(errors: list[str]) -> str:
    """Return several errors as one text."""
    return errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {error}" for error in errors)])


def _check(value: Any, kind: Type, path: str, errors: list[str], depth: int) -> None:
    if value.__class__ is GoValue:
        errors.append(f"{path}: {_native_problem(value, kind)}")
        return
    if value is None or isinstance(kind, AnyType):
        return
    if depth > MAX_DEPTH:
        errors.append(f"{path}: exceeded max depth")
    elif isinstance(kind, Scalar):
        problem = scalar_problem(value, kind.kind)
        if problem:
            errors.append(f"{path}: {problem}")
    elif isinstance(kind, ListType):
        if value.__class__ is not list:
            errors.append(f"{path}: expected list, got &{{{go_map(value)}}}")
        else:
            _check_list(value, kind, path, errors, depth)
    elif value.__class__ is not dict:
        if not (isinstance(kind, ObjectType) and kind.free):
            errors.append(f"{path}: expected map, got &{{{go_map(value)}}}")
    elif isinstance(kind, MapType):
        for name, item in value.items():
            _check(item, kind.value, f"{path}.{name}", errors, depth + 1)
    elif isinstance(kind, ObjectType):
        for name, item in value.items():
            field = kind.fields.get(name)
            below = kind.other if field is None else field.type
            if below is None:
                errors.append(f"{path}.{name}: field not declared in schema")
                return
            _check(item, below, f"{path}.{name}", errors, depth + 1)


def _check_list(items: list[Any], kind: ListType, path: str, errors: list[str], depth: int) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        where = f"[{index}]"
        if kind.list_type != ATOMIC:
            try:
                element = path_elements.item_element(item, kind)
            except NoPathElement as error:
                errors.append(f"{path}: element {index}: {error}")
                return
            where = element_text(element)
            if element in seen:
                errors.append(_Repeated(f"{path}: duplicate entries for key {where}"))
            seen.add(element)
        _check(item, kind.item, f"{path}{where}", errors, depth + 1)


def _native_problem(value: GoValue, kind: Type) -> str:
    """Return the problem of a value that no field may have."""
    if isinstance(kind, ListType):
        return f"expected list, got &{{{value.printed}}}"
    if not isinstance(kind, Scalar) or kind.kind == "intorstring":
        return f"expected map, got &{{{value.printed}}}"
    if kind.kind in _STRING:
        return f"expected string, got &value.valueUnstructured{{Value:{value.syntax}}}"
    if kind.kind in _NUMERIC:
        return f"expected numeric (int or float), got {value.go_type}"
    return f"expected boolean, got &{{{value.printed}}}"


def scalar_problem(value: Any, kind: str) -> str:
    """Return the problem of a value for a kind of scalar, "" if it has none."""
    is_bool = isinstance(value, bool)
    if kind in _STRING:
        if isinstance(value, str):
            return ""
        return f"expected string, got &value.valueUnstructured{{Value:{_syntax(value)}}}"
    if kind in _NUMERIC:
        if isinstance(value, int | float) and not is_bool:
            return ""
        return f"expected numeric (int or float), got {_type_name(value)}"
    if kind == "boolean":
        return "" if is_bool else f"expected boolean, got &{{{go_map(value)}}}"
    if kind == "intorstring":
        return ""  # its schema names no type, so that any value passes here
    return f"expected any scalar, got &{{{go_map(value)}}}" if isinstance(value, dict | list) else ""


def _type_name(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"


def _syntax(value: Any) -> str:
    """Return a value in Go's syntax (``%#v``)."""
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{go_quote(name)}:{_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def fits(value: Any, kind: Type, depth: int = 0) -> bool:
    """Return whether field managers can handle a value: it has the types of its schema. Items may be repeated."""
    if value is None or isinstance(kind, AnyType):
        return True
    if depth > MAX_DEPTH:
        return False
    if kind.__class__ is Scalar:
        return not scalar_problem(value, kind.kind)
    if kind.__class__ is ListType:
        return value.__class__ is list and _items_fit(value, kind, depth + 1)
    if value.__class__ is not dict:
        return isinstance(kind, ObjectType) and kind.free
    if kind.__class__ is MapType:
        below = kind.value
        leaf = _leaf_of(below)
        return all(item.__class__ is leaf or fits(item, below, depth + 1) for item in value.values())
    assert isinstance(kind, ObjectType), kind
    fields = kind.fields
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if kind.other is None or not fits(item, kind.other, depth + 1):
                return False
        elif item.__class__ is not field.leaf and not fits(item, field.type, depth + 1):
            return False
    return True


def _items_fit(items: list[Any], kind: ListType, depth: int) -> bool:
    below = kind.item
    leaf = _leaf_of(below)
    if kind.list_type != ATOMIC:
        try:
            path_elements.elements_of(items, kind)
        except NoPathElement:
            return False
    return all(item.__class__ is leaf or fits(item, below, depth) for item in items)


def _leaf_of(kind: Type) -> type | None:
    """Return the Python class that alone makes a value valid, if the type has one."""
    return str if kind.__class__ is Scalar and kind.kind == "string" else None


# -- the set of fields ------------------------------------------------------------------------------------------------


def field_set(value: dict[str, Any], kind: ObjectType) -> FieldSet:
    """Return the fields of a configuration (or an object): its leaves, list items, and empty values.

    Unlike in field_sets.everything, a map is not a member merely because of its contents:

        {"data": {"k": "v"}, "labels": {}}  ->  {"f:data": {"f:k": {}}, "f:labels": {}}
    """
    return members_below(value, kind) or {}


def members_below(value: Any, kind: Type) -> FieldSet | None:
    """Return the members below a value; None for a leaf, which is a member itself."""
    if value is None or isinstance(kind, Scalar):
        return None
    if isinstance(kind, ListType):
        return None if kind.list_type == ATOMIC or value.__class__ is not list else _below_list(value, kind)
    if value.__class__ is not dict:
        return None
    if isinstance(kind, AnyType):
        return _below_map(value, kind) if kind.deduced else None
    if isinstance(kind, MapType):
        return None if kind.atomic else _below_map(value, kind.value)
    if not isinstance(kind, ObjectType) or kind.atomic:
        return None
    named: FieldSet = {}
    for name in sorted(value):
        item, field = value[name], kind.fields.get(name)
        node = _node(item, kind.other or _OPAQUE if field is None else field.type, member=field is None)
        if node is not None:
            named[f"f:{name}"] = node
    return named


def _below_map(value: dict[str, Any], kind: Type) -> FieldSet:
    return {f"f:{name}": _node(value[name], kind, member=True) or _LEAF for name in sorted(value)}


def _below_list(items: list[Any], kind: ListType) -> FieldSet:
    named: FieldSet = {}
    for element, found in path_elements.items_by_element(items, kind).items():
        named[element] = (_node(found[0], kind.item, member=True) or _LEAF) if len(found) == 1 else _LEAF
    return path_elements.in_order(named)


def _node(value: Any, kind: Type, *, member: bool) -> FieldSet | None:
    """Return the node of a value, None if neither it nor a descendant is a member."""
    below = members_below(value, kind)
    if below is None or value == {}:
        return _LEAF
    if not member:
        return below or None
    return {SELF: _LEAF, **below} if below else _LEAF


_OPAQUE: Final = AnyType("interface {}", deduced=False)
