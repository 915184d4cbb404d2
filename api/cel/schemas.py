"""OpenAPI schemas as CEL types, and JSON data as values of these types.

A schema is an OpenAPI v3 schema, as a dict, or the type of a built-in kind.
Source: k8s.io/apiserver/pkg/cel/common (schemas.go, values.go).

| schema | CEL |
|---|---|
| object with properties | object type; names escaped, properties without a type left out |
| object with additionalProperties | map |
| array | list; x-kubernetes-list-type set and map compare without order |
| int-or-string | dyn |
| string with format byte, date, date-time, duration | bytes, timestamp, duration |
| no type, such as with x-kubernetes-preserve-unknown-fields | none: it cannot be named |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.operations.times import parse_timestamp
from kubechronicle.api.cel.syntax.escaping import escape
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelField,
    CelType,
    list_of,
    map_of,
    object_type,
)
from kubechronicle.api.cel.values import Duration
from kubechronicle.api.schema import types as built_in
from kubechronicle.api.values import durations

# -- keyed lists -------------------------------------------------------------------------------------------------------
#
# Unordered lists: the values of schemas with x-kubernetes-list-type set or map.
#
# Two are equal if they have the same elements. ``X + Y`` is the union or merge: X keeps its places, an element of Y
# with a key of X takes that place, and the others follow (KEP-2876).


class KeyedList(list[Any]):
    """A list with keys: the fields ``keys`` of its objects, or the elements themselves if there are no names."""

    __slots__ = ("keys",)

    def __init__(self, elements: Sequence[Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> Any:
        """Return the key of an element, hashable."""
        if not self.keys:
            return _hashable(element)
        return tuple(_hashable(element.get(name)) for name in self.keys) if isinstance(element, dict) else None

    def cel_equal(self, other: Sequence[Any]) -> bool:
        """Return whether another list has equal elements in any order."""
        if len(self) != len(other):
            return False
        mine = {self.key_of(element): element for element in self}
        return all((key := self.key_of(element)) in mine and equal(mine[key], element) for element in other)

    def cel_add(self, other: Sequence[Any]) -> KeyedList:
        """Return the union with, or the merge of, another list."""
        merged = list(self)
        places = {self.key_of(element): place for place, element in enumerate(merged)}
        for element in other:
            place = places.setdefault(self.key_of(element), len(merged))
            if place == len(merged):
                merged.append(element)
            elif self.keys:
                merged[place] = element
        return KeyedList(merged, self.keys)


def _hashable(value: Any) -> Any:
    # For Python, True equals 1; for CEL it does not.
    if isinstance(value, bool):
        return (bool, value)
    return value if value is None or isinstance(value, (str, int, float, bytes)) else repr(value)


# -- schemas -----------------------------------------------------------------------------------------------------------

Schema = Mapping[str, Any]
Convert = Callable[[Any], Any]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_TEXT: Final[Schema] = {"type": "string"}
_RESOURCE: Final[Mapping[str, Schema]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
"""Properties of every resource; a schema need not list them."""


def object_type_of(schema: Schema, name: str, *, resource: bool = False) -> CelType | None:
    """Return the CEL type of a schema, None if expressions cannot name it.

    ``name``: the type's name, which also begins the names of the types below it.
    ``resource``: the schema is the root of a resource.
    """
    if _is_int_or_string(schema):
        return DYN
    kind = schema.get("type")
    if resource:
        schema = whole_resource(schema)
    if kind == "array":
        items = schema.get("items")
        element = object_type_of(items, f"{name}.@idx", resource=_is_embedded(items)) if items else None
        return None if element is None else _list_type(element, schema)
    if kind == "object":
        values = schema.get("additionalProperties")
        if isinstance(values, Mapping):
            value = object_type_of(values, f"{name}.@elem", resource=_is_embedded(values))
            return None if value is None else map_of(STRING, value)
        return object_type(name, lambda: _fields(schema, name))
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), STRING)
    return _SCALARS.get(kind or "")


def _list_type(element: CelType, schema: Schema) -> CelType:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in (built_in.SET, built_in.MAP):
        return list_of(element)
    return _keyed(element, tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == built_in.MAP else ())


def _keyed(element: CelType, keys: tuple[str, ...]) -> CelType:
    return list_of(element).reading(lambda data: KeyedList(data, keys) if type(data) is list else data)


def _is_int_or_string(schema: Schema) -> bool:
    return bool(schema.get(INT_OR_STRING)) or schema.get("format") == "int-or-string"


def _is_embedded(schema: Schema) -> bool:
    return bool(schema.get(EMBEDDED))


def whole_resource(schema: Schema) -> Schema:
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    if {"apiVersion", "kind"} <= properties.keys() and {"name", "generateName"} <= (
        metadata.get("properties") or {}
    ).keys():
        return schema
    return {**schema, "properties": {**properties, **_RESOURCE}}


def _fields(schema: Schema, name: str) -> dict[str, CelType | CelField]:
    fields: dict[str, CelType | CelField] = {}
    for plain, each in (schema.get("properties") or {}).items():
        escaped = escape(plain)
        kind = None if escaped is None else object_type_of(each, f"{name}.{escaped}", resource=_is_embedded(each))
        if escaped is not None and kind is not None:
            fields[escaped] = CelField(kind, plain)
    return fields


# -- built-in kinds ---------------------------------------------------------------------------------------------------


def built_in_type(of: built_in.Type, name: str) -> CelType:
    """Return the CEL type of a built-in kind's type."""
    if isinstance(of, built_in.Scalar):
        return _KINDS[of.kind]
    if isinstance(of, built_in.ListType):
        element = built_in_type(of.item, f"{name}.@idx")
        return list_of(element) if of.list_type == built_in.ATOMIC else _keyed(element, of.keys)
    if isinstance(of, built_in.MapType):
        return map_of(STRING, built_in_type(of.value, f"{name}.@elem"))
    if isinstance(of, built_in.ObjectType):
        kind = of
        return object_type(name, lambda: _built_in_fields(kind, name))
    return DYN


def _built_in_fields(of: built_in.ObjectType, name: str) -> dict[str, CelType | CelField]:
    fields: dict[str, CelType | CelField] = {}
    for plain, field in of.fields.items():
        escaped = escape(plain)
        if escaped is not None:
            fields[escaped] = CelField(built_in_type(field.type, f"{name}.{escaped}"), plain)
    return fields


# -- values -----------------------------------------------------------------------------------------------------------


def value_of(data: Any, of: CelType) -> Any:
    """Return the CEL value of data of that type. Values below it are read when they are used."""
    return data if of.read is None else of.read(data)


def without_nulls(schema: Schema) -> Convert | None:
    """Return a function that drops null properties, which count as absent. None if no property may be null."""
    items, values = schema.get("items"), schema.get("additionalProperties")
    if schema.get("type") == "array" and isinstance(items, Mapping):
        item = without_nulls(items)
        return None if item is None else lambda data: data and list(map(item, data))
    if schema.get("type") == "object" and isinstance(values, Mapping):
        value = without_nulls(values)
        return None if value is None else lambda data: data and dict(zip(data, map(value, data.values()), strict=True))
    properties = schema.get("properties") or {}
    below = {name: convert for name, own in properties.items() if (convert := without_nulls(own)) is not None}
    if not below and not any(own.get("nullable") for own in properties.values()):
        return None
    return lambda data: data and _without_nulls(data, properties, below)


def _without_nulls(data: Mapping[str, Any], properties: Schema, below: Mapping[str, Convert]) -> dict[str, Any]:
    kept = {}
    for name, value in data.items():
        if value is None and name in properties:
            continue
        convert = below.get(name)
        kept[name] = value if convert is None else convert(value)
    return kept


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError) as problem:
        raise EvaluationError(f"Invalid byte formatted string {data}: {problem}") from None


def _reader(form: str, parse: Callable[[str], Any], suffix: str = "") -> Convert:
    def read(data: Any) -> Any:
        value = parse(data + suffix) if isinstance(data, str) else data
        if value is None:
            raise EvaluationError(f"Invalid {form} {data}")
        return value

    return read


def _double(data: Any) -> Any:
    return float(data) if type(data) is int else data


def _duration(text: str) -> Duration | None:
    length = durations.parse_format(text)
    return None if length is None else Duration(length)


_DOUBLE: Final = DOUBLE.reading(_double)
_SCALARS: Final = {"boolean": BOOL, "integer": INT, "number": _DOUBLE}
_TIMESTAMP: Final = TIMESTAMP.reading(_reader("date-time formatted string", parse_timestamp))
_BYTES: Final = BYTES.reading(_bytes)
_FORMATS: Final = {
    "byte": _BYTES,
    "date": TIMESTAMP.reading(_reader("date formatted string", parse_timestamp, "T00:00:00Z")),
    "date-time": _TIMESTAMP,
    "duration": DURATION.reading(_reader("duration", _duration)),
}
_KINDS: Final = {
    "string": STRING,
    "boolean": BOOL,
    "int32": INT,
    "int64": INT,
    "number": _DOUBLE,
    "bytes": _BYTES,
    "time": _TIMESTAMP,
    "microtime": _TIMESTAMP,
    "quantity": STRING,
    "intorstring": DYN,
}
