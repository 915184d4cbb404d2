"""Schemas as CEL sees them: the types of the objects they describe, and the values of those objects.

Source: k8s.io/apiserver/pkg/cel/common (schemas.go, values.go). A schema is an OpenAPI v3 one, a dict as JSON has it,
or one of the built-in kinds' types.

| schema | CEL |
|---|---|
| object with properties | object type; names escaped, properties without a type left out |
| object with additionalProperties | map |
| array | list; x-kubernetes-list-type set and map compare without order |
| int-or-string | dyn |
| string with format byte, date, date-time, duration | bytes, timestamp, duration |
| no type, such as with x-kubernetes-preserve-unknown-fields | nothing: it cannot be named |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.escaping import escape
from kubechronicle.api.cel.keyed_lists import KeyedList
from kubechronicle.api.cel.times import parse_duration, parse_timestamp
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
    object_type,
)
from kubechronicle.api.schema import types as built_in

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
"""What every resource has, whatever its schema says."""
_SCALARS: Final = {"string": STRING, "boolean": BOOL, "integer": INT, "number": DOUBLE}
_FORMATS: Final = {"byte": BYTES, "date": TIMESTAMP, "date-time": TIMESTAMP, "duration": DURATION}


def object_type_of(schema: Schema, name: str, *, resource: bool = False) -> Type | None:
    """Return the CEL type of what a schema describes, None if expressions cannot name it.

    ``name`` is how the type is called, and those below it after it; ``resource``: it is the root of one.
    """
    if _is_int_or_string(schema):
        return DYN
    kind = schema.get("type")
    if resource:
        schema = _whole_resource(schema)
    if kind == "array":
        items = schema.get("items")
        element = object_type_of(items, f"{name}.@idx", resource=_is_embedded(items)) if items else None
        return None if element is None else list_of(element)
    if kind == "object":
        values = schema.get("additionalProperties")
        if isinstance(values, Mapping):
            value = object_type_of(values, f"{name}.@elem", resource=_is_embedded(values))
            return None if value is None else map_of(STRING, value)
        return object_type(name, lambda: _fields(schema, name))
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), STRING)
    return _SCALARS.get(kind or "")


def _is_int_or_string(schema: Schema) -> bool:
    return bool(schema.get(INT_OR_STRING)) or schema.get("format") == "int-or-string"


def _is_embedded(schema: Schema) -> bool:
    return bool(schema.get(EMBEDDED))


def _whole_resource(schema: Schema) -> Schema:
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    if {"apiVersion", "kind"} <= properties.keys() and {"name", "generateName"} <= (
        metadata.get("properties") or {}
    ).keys():
        return schema
    return {**schema, "properties": {**properties, **_RESOURCE}}


def _fields(schema: Schema, name: str) -> dict[str, Type | Field]:
    fields: dict[str, Type | Field] = {}
    for plain, each in (schema.get("properties") or {}).items():
        escaped = escape(plain)
        kind = None if escaped is None else object_type_of(each, f"{name}.{escaped}", resource=_is_embedded(each))
        if escaped is not None and kind is not None:
            fields[escaped] = Field(kind, plain)
    return fields


# -- built-in kinds ---------------------------------------------------------------------------------------------------

_KINDS: Final = {
    "string": STRING,
    "boolean": BOOL,
    "int32": INT,
    "int64": INT,
    "number": DOUBLE,
    "bytes": BYTES,
    "time": TIMESTAMP,
    "microtime": TIMESTAMP,
    "quantity": STRING,
    "intorstring": DYN,
}


def built_in_type(of: built_in.Type, name: str) -> Type:
    """Return the CEL type of a built-in kind's type."""
    if isinstance(of, built_in.Scalar):
        return _KINDS[of.kind]
    if isinstance(of, built_in.ListType):
        return list_of(built_in_type(of.item, f"{name}.@idx"))
    if isinstance(of, built_in.MapType):
        return map_of(STRING, built_in_type(of.value, f"{name}.@elem"))
    if isinstance(of, built_in.ObjectType):
        kind = of
        return object_type(name, lambda: _built_in_fields(kind, name))
    return DYN


def _built_in_fields(of: built_in.ObjectType, name: str) -> dict[str, Type | Field]:
    fields: dict[str, Type | Field] = {}
    for plain, field in of.fields.items():
        escaped = escape(plain)
        if escaped is not None:
            fields[escaped] = Field(built_in_type(field.type, f"{name}.{escaped}"), plain)
    return fields


# -- values -----------------------------------------------------------------------------------------------------------


def converter(schema: Schema) -> Convert | None:
    """Return what makes a value of JSON one of CEL; None if it may be taken as it is.

    The converter raises EvaluationError for a value that is not what the schema says."""
    if _is_int_or_string(schema):
        return None
    kind = schema.get("type")
    made = _MAKERS.get(kind or "", _unchanged)(schema)
    if made is None or not schema.get("nullable"):
        return made
    convert = made
    return lambda value: None if value is None else convert(value)


def _unchanged(schema: Schema) -> Convert | None:
    return None


def _text_converter(schema: Schema) -> Convert | None:
    return _READERS.get(schema.get("format", ""))


def _number_converter(schema: Schema) -> Convert | None:
    return float


def _list_converter(schema: Schema) -> Convert | None:
    items, list_type = schema.get("items") or {}, schema.get("x-kubernetes-list-type")
    convert = converter(items)
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if list_type == "map":
        return lambda value: KeyedList(value if convert is None else [convert(each) for each in value], keys)
    if list_type == "set":
        return lambda value: KeyedList(value if convert is None else [convert(each) for each in value])
    return None if convert is None else lambda value: [convert(each) for each in value]


def _object_converter(schema: Schema) -> Convert | None:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        convert = converter(values)
        return None if convert is None else lambda value: {name: convert(each) for name, each in value.items()}
    properties = schema.get("properties") or {}
    converters = {name: convert for name, each in properties.items() if (convert := converter(each)) is not None}
    nullable = any(each.get("nullable") for each in properties.values())
    if not converters and not nullable:
        return None

    def convert_object(value: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, each in value.items():
            if each is None:
                continue  # what is null is as good as absent
            own = converters.get(name)
            found[name] = each if own is None else own(each)
        return found

    return convert_object


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as problem:
        raise EvaluationError(f"Invalid byte formatted string {value}: {problem}") from None


def _reader(what: str, parse: Callable[[str], Any], suffix: str = "") -> Convert:
    def read(value: str) -> Any:
        found = parse(value + suffix)
        if found is None:
            raise EvaluationError(f"Invalid {what} {value}")
        return found

    return read


_READERS: Final[dict[str, Convert]] = {
    "byte": _bytes,
    "date": _reader("date formatted string", parse_timestamp, "T00:00:00Z"),
    "date-time": _reader("date-time formatted string", parse_timestamp),
    "duration": _reader("duration", parse_duration),
}
_MAKERS: Final[dict[str, Callable[[Schema], Convert | None]]] = {
    "array": _list_converter,
    "object": _object_converter,
    "string": _text_converter,
    "number": _number_converter,
}
