"""Structural types of custom resources, compiled from openAPIV3Schemas, for field owners and server-side apply.

After kube-openapi ``pkg/schemaconv/openapi.go``, with the fields that apiextensions-apiserver
``pkg/controller/openapi/builder`` adds. A schema becomes a type of api/schema/types.py:

    properties                            ObjectType; undeclared fields are unknown
    properties, preserve unknown fields   ObjectType; undeclared fields are deduced, here and in all levels below
    additionalProperties                  MapType
    an object without either              MapType of deduced values
    array                                 ListType: atomic, or a set or map by x-kubernetes-list-type
    no type (int-or-string, or any JSON)  deduced: owned field by field if it is an object

Not here: decoding, defaults and pruning (schema/), which treat such values otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.schema.types import ATOMIC, META, AnyType, ListType, MapType, ObjectType, Scalar, Type
from kubechronicle.api.schema.types import object_type as builtin_type

Schema = Mapping[str, Any]

MAX_DEPTH: Final = 200
"""The deepest level with a type of its own; values below it are owned as a whole. Objects are not nested deeper."""

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def object_type(openapi: Schema, *, preserve_unknown: bool = False) -> ObjectType:
    """Return the type of a version's objects. ``preserve_unknown``: spec.preserveUnknownFields."""
    if not openapi:
        return ObjectType.of_fields({}, other=_deduced())
    root = _fields_of(openapi, preserve=preserve_unknown or bool(openapi.get(_PRESERVE)), depth=0)
    return _with_type_and_metadata(openapi, root, free=False)


def _with_type_and_metadata(schema: Schema, kind: ObjectType, *, free: bool) -> ObjectType:
    """Return the type of an object with apiVersion, kind and metadata, which every schema of a resource has."""
    fields = {name: field.type for name, field in kind.fields.items()}
    fields |= {
        "apiVersion": _scalar("string"),
        "kind": _scalar("string"),
        "metadata": builtin_type(f"{META}ObjectMeta"),
    }
    return ObjectType.of_fields(fields, other=kind.other, atomic=_atomic(schema), free=free)


def _compile(schema: Schema, *, preserve: bool, depth: int) -> Type:
    if depth > MAX_DEPTH:
        return _marked(AnyType("interface {}", deduced=False))
    preserve = preserve or bool(schema.get(_PRESERVE))
    word = schema.get("type", "")
    if word == "array":
        return _list(schema, preserve=preserve, depth=depth)
    if word and word != "object":
        return _scalar(_kind_of_scalar(word, schema.get("format", "")))
    if schema.get("x-kubernetes-embedded-resource"):
        return _with_type_and_metadata(schema, _fields_of(schema, preserve=preserve, depth=depth), free=not word)
    additional = schema.get("additionalProperties")
    if schema.get("properties") or additional is False:
        return _fields_of(schema, preserve=preserve, depth=depth)
    if not word and not isinstance(additional, Mapping):
        return _deduced()
    value = _compile(additional, preserve=preserve, depth=depth + 1) if isinstance(additional, Mapping) else _deduced()
    if not word:
        return ObjectType.of_fields({}, other=value, free=True)
    return _marked(MapType(value, "", atomic=_atomic(schema)))


def _fields_of(schema: Schema, *, preserve: bool, depth: int) -> ObjectType:
    """Return the type of an object with properties."""
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    fields = {name: _compile(below, preserve=preserve, depth=depth + 1) for name, below in properties.items()}
    additional = schema.get("additionalProperties")
    other: Type | None = None
    if isinstance(additional, Mapping):
        other = _compile(additional, preserve=preserve, depth=depth + 1)
    elif additional is True or (additional is None and (preserve or not properties)):
        other = _deduced()
    return ObjectType.of_fields(fields, other=other, atomic=_atomic(schema), free=not schema.get("type"))


def _list(schema: Schema, *, preserve: bool, depth: int) -> Type:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return _marked(AnyType("interface {}", deduced=False))
    defaults: dict[str, Any] = {}
    properties = items.get("properties") or {}
    for name in schema.get("x-kubernetes-list-map-keys") or ():
        default = (properties.get(name) or {}).get("default")
        if default is not None:
            defaults[name] = default
    return _marked(
        ListType(
            _compile(items, preserve=preserve, depth=depth + 1),
            "",
            list_type=schema.get("x-kubernetes-list-type", ATOMIC),
            keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
            key_defaults=defaults,
        )
    )


def _kind_of_scalar(word: str, text_format: str) -> str:
    """Return the kind of a Scalar. Field managers know strings, numbers and booleans, and other scalars."""
    if word in ("integer", "number"):
        return "number"
    if word == "boolean":
        return "boolean"
    return "string" if word == "string" and text_format in ("", "byte") else "untyped"


def _scalar(kind: str) -> Type:
    return _marked(Scalar(kind, ""))


def _deduced() -> Type:
    return _marked(AnyType("interface {}", deduced=True))


def _marked(kind: Type) -> Type:
    kind.custom = True
    return kind


def _atomic(schema: Schema) -> bool:
    return schema.get("x-kubernetes-map-type") == ATOMIC
