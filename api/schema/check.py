"""The check of a decoded JSON object against its structural type, with the effects of Go's typed decoding.

Afterwards the object is as Kubernetes writes it. Unknown fields are removed and reported. Nulls and zero values that Go
omits are removed. Structs that Go always writes are added. Times, bytes and quantities are in canonical form. The
object is changed in place, because it was decoded for one request alone.

    check({"metadata": {"label": {}}, "data": {}}, ConfigMap) -> ['metadata.label'], object now {"metadata": {}}

The places of the empty lists and maps that are removed can be noted (empties.py).

Invariant: checking a checked object changes nothing, so stored objects need no second check.

Every write runs this code. So common leaves (strings, booleans) are checked inline by their class, any other value with
one call. Paths are built only for reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, Final

from kubechronicle.api.schema import types, values
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.equality import encoded
from kubechronicle.api.schema.types import SCALAR_ZERO, AnyType, Field, ListType, MapType, ObjectType, Scalar, Type
from kubechronicle.api.schema.values import ValueDecodeError, json_word

MAX_UNKNOWN: Final = 10_000
"""The most unknown fields and empty lists whose paths are collected; answers show fewer."""

MAX_DEPTH: Final = 200
"""The deepest nesting of objects, which protects the stack; Kubernetes' own limit in Go is 10,000."""


class TypeMismatch(ValueError):
    """A value of a wrong type for its field. The text is Go's: ``json: cannot unmarshal number into …``."""


class ConversionFailed(TypeMismatch):
    """A value that has the right type, but no place in Kubernetes' internal form of the kind."""


class Mismatch(Exception):
    """A mismatch on its way up. ``names`` collects the names of the enclosing fields, innermost first."""

    def __init__(self, word: str, go_type: str) -> None:
        super().__init__(word)
        self.word = word
        self.go_type = go_type
        self.struct = ""
        self.names: list[str] = []

    def enter(self, kind: ObjectType, field: Field, name: str) -> None:
        """Note that the value is within this field of an object."""
        self.struct = self.struct or kind.go_name
        self.names.append(f"{field.embedded}.{name}" if field.embedded else name)

    def text(self) -> str:
        """Return Go's error."""
        where = f"Go struct field {self.struct}.{'.'.join(reversed(self.names))}" if self.struct else "Go value"
        return f"json: cannot unmarshal {self.word} into {where} of type {self.go_type}"


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": values.string,
    "boolean": values.boolean,
    "int32": values.int32,
    "int64": values.int64,
    "number": values.number,
    "bytes": values.data_bytes,
    "time": values.time,
    "microtime": values.microtime,
    "quantity": values.quantity_text,
    "intorstring": values.int_or_string,
}


Found = list[str | Empty]
"""Paths of unknown fields, and empty lists and maps."""

Members = Mapping[str, Set[str] | None]
"""Names of members of an object, each with the names of its own members, or None for all of them."""


def check(value: dict[str, Any], kind: ObjectType, empties: list[Empty] | None = None) -> list[str]:
    """Convert ``value`` to the form Kubernetes writes, in place. Return the paths of unknown fields in document order.

    ``empties`` receives the empty lists and maps. TypeMismatch for the first value of a wrong type, which Go cannot
    decode either.
    """
    found: Found = []
    try:
        _object(value, kind, found)
    except Mismatch as mismatch:
        raise TypeMismatch(_ending_error(value, kind) or mismatch.text()) from None
    except ValueDecodeError as error:
        raise TypeMismatch(error.text) from None
    except RecursionError:
        raise TypeMismatch("exceeded max depth") from None
    if empties is not None:
        empties += [each for each in found if isinstance(each, Empty)]
    return [each for each in found if isinstance(each, str)]


def check_members(value: dict[str, Any], kind: ObjectType, members: Members) -> None:
    """Check some members of an object, in place; ``check`` would find nothing to do in the others. TypeMismatch."""
    whole: list[str] = []
    try:
        for name, below in members.items():
            field, item = kind.fields.get(name), value.get(name)
            if below is None or field is None or field.type.__class__ is not ObjectType or item.__class__ is not dict:
                whole.append(name)
            else:
                _check_some(item, field.type, below)
        if whole:
            _check_some(value, kind, whole)
    except (Mismatch, ValueDecodeError, RecursionError):
        check(value, kind)  # its error is that of the whole object
        raise


def _check_some(value: dict[str, Any], kind: ObjectType, names: Collection[str]) -> None:
    """Check the members with these names."""
    checked = {name: value[name] for name in names if name in value}
    _object(checked, kind, [])
    for name in names:
        if name in checked:
            value[name] = checked[name]
        else:
            value.pop(name, None)
    for name, _ in kind.always:
        if name not in value:
            value[name] = checked[name]


def check_item(item: Any, kind: Type) -> None:
    """Check a value of an object, in place. Raises Mismatch or DecodeError."""
    _value(item, kind, [])


_SELF_DECODING: Final = frozenset(("time", "microtime", "quantity", "intorstring"))
"""Scalars whose Go types decode themselves. Their error ends the decoding; other wrong types are only noted."""


def _ending_error(value: dict[str, Any], kind: ObjectType) -> str:
    """Return the error that Go reports instead of the first wrong type: that of a type which decodes itself."""
    try:
        _decode_selves(value, kind)
    except Mismatch as mismatch:
        return mismatch.text()
    except ValueDecodeError as error:
        return error.text
    return ""


def _decode_selves(item: Any, kind: Type) -> None:
    if kind.__class__ is Scalar:
        if kind.kind in _SELF_DECODING:
            _value(item, kind, [])
    elif kind.__class__ is ObjectType and item.__class__ is dict:
        for name, below in item.items():
            field = kind.fields.get(name)
            if field is None or below is None or below.__class__ is field.leaf:
                continue
            try:
                _decode_selves(below, field.type)
            except Mismatch as mismatch:
                mismatch.enter(kind, field, name)
                raise
    elif kind.__class__ is ListType and item.__class__ is list:
        for below in item:
            if below is not None:
                _decode_selves(below, kind.item)
    elif kind.__class__ is MapType and item.__class__ is dict:
        for below in item.values():
            if below is not None:
                _decode_selves(below, kind.value)


def _object(value: dict[str, Any], kind: ObjectType, found: Found) -> None:
    fields = kind.fields
    drop: list[str] = []
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if len(found) < MAX_UNKNOWN:
                found.append(name)
            drop.append(name)
            continue
        if item.__class__ is field.leaf:
            if not item and not field.keep_zero:
                drop.append(name)
            continue
        if item is None:
            drop.append(name)
            continue
        before = len(found)
        try:
            result = _value(item, field.type, found)
        except Mismatch as mismatch:
            mismatch.enter(kind, field, name)
            raise
        if len(found) > before:
            _prefix(found, before, name)
        if result is not item:
            value[name] = result
        if not result:
            if _dropped(result, field):
                drop.append(name)
            if _empty(result, field) and len(found) < MAX_UNKNOWN:
                found.append(Empty(name, result))
    for name in drop:
        del value[name]
    for name, make in kind.always:
        if name not in value:
            value[name] = make()


def _dropped(result: Any, field: Field) -> bool:
    """Return whether Go omits this empty value: an empty list or map, or a zero scalar; never an empty struct.

    empties.py treats lists and maps that are always written."""
    if isinstance(field.type, ObjectType | AnyType):
        return False
    return not field.keep_zero or (result is None and isinstance(field.type, Scalar))


def _empty(result: Any, field: Field) -> bool:
    """Return whether an empty value is one that Go tells from nil: a list, a map, or bytes."""
    if isinstance(field.type, Scalar):
        return field.type.kind == "bytes" and result is not None
    return isinstance(field.type, ListType | MapType)


def _value(item: Any, kind: Type, found: Found) -> Any:
    if kind.__class__ is ObjectType:
        if item.__class__ is not dict:
            raise Mismatch(json_word(item), kind.go_type)
        _object(item, kind, found)
        return item
    if kind.__class__ is Scalar:
        try:
            return _SCALARS[kind.kind](item)
        except ValueDecodeError as error:
            if error.wrong_type:
                raise Mismatch(error.wrong_type, error.go_type or kind.go_type) from None
            raise
    if kind.__class__ is ListType:
        if item.__class__ is not list:
            raise Mismatch(json_word(item), kind.go_type)
        _list(item, kind.item, found)
        return item
    if kind.__class__ is MapType:
        if item.__class__ is not dict:
            raise Mismatch(json_word(item), kind.go_type)
        _map(item, kind.value, found)
    elif kind.go_type in _SCHEMA_OR:
        return _schema_or(item, kind.go_type)
    elif kind.go_type == "v1.JSON":
        return encoded(item)
    return item


_SCHEMA_OR: Final = frozenset(
    ("v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrStringArray")
)
"""Types of apiextensions that decode themselves: a JSON schema, or something else."""

_SCHEMA: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def _schema_or(item: Any, go_type: str) -> Any:
    """Check a JSON schema within a JSON schema, or the value in its place. Unknown fields are removed in silence."""
    if item.__class__ is dict:
        _object(item, types.object_type(_SCHEMA), [])
    elif go_type == "v1.JSONSchemaPropsOrBool":
        if item.__class__ is not bool:
            raise ValueDecodeError("boolean or JSON schema expected")
    elif item.__class__ is not list:
        return []
    else:
        strings = go_type == "v1.JSONSchemaPropsOrStringArray"
        _list(item, Scalar("string", "string") if strings else types.object_type(_SCHEMA), [])
    return item


def _list(items: list[Any], kind: Type, found: Found) -> None:
    plain = str if kind.__class__ is Scalar and kind.kind == "string" else None
    for index, item in enumerate(items):
        if item.__class__ is plain:
            continue
        if item is None:
            items[index] = _null_item(kind)
            continue
        before = len(found)
        result = _value(item, kind, found)
        if result is not item:
            items[index] = result
        if len(found) > before:
            _prefix(found, before, f"[{index}]")


def _map(items: dict[str, Any], kind: Type, found: Found) -> None:
    plain = str if kind.__class__ is Scalar and kind.kind == "string" else None
    for key, item in items.items():
        if item.__class__ is plain:
            continue
        if item is None:
            items[key] = _null_item(kind)
            continue
        before = len(found)
        result = _value(item, kind, found)
        if result is not item:
            items[key] = result
        if len(found) > before:
            _prefix(found, before, key)


def _prefix(found: Found, start: int, head: str) -> None:
    for index in range(start, len(found)):
        path = found[index]
        if isinstance(path, Empty):
            path.steps.append(head)
            continue
        found[index] = f"{head}{path}" if path[:1] == "[" else f"{head}.{path}"


def _null_item(kind: Type) -> Any:
    """Return the replacement of a null in a list or map: the zero value of its type, as in Go."""
    if isinstance(kind, ObjectType):
        return kind.zero()
    if isinstance(kind, Scalar):
        return SCALAR_ZERO[kind.kind]
    return None
