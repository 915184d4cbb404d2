"""The schemas within a schema, and questions about all of them.

Source: ``SchemaHas`` in apiextensions-apiserver ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubechronicle.api.values.objects import Object

_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "items"))
_MAPS: Final = frozenset(("properties", "patternProperties", "definitions", "dependencies"))
_SINGLE: Final = frozenset(("items", "not", "additionalProperties", "additionalItems"))

UNSUPPORTED: Final = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
"""Keywords that no structural schema has."""

_EXTENSIONS: Final = (
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)


def _below(schema: Object) -> list[Object]:
    found: list[Object] = []
    for name, value in schema.items():
        if value.__class__ is dict:
            if name in _MAPS:
                found += [each for each in value.values() if each.__class__ is dict]
            elif name in _SINGLE:
                found.append(value)
        elif value.__class__ is list and name in _LISTS:
            found += value
    return found


def every(schema: Object | None) -> Iterator[Object]:
    """Yield a schema and all schemas within it, parents first."""
    pending = [] if schema is None else [schema]
    while pending:
        schema = pending.pop()
        yield schema
        pending += reversed(_below(schema))


def has_default(schema: Object) -> bool:
    """Return whether a schema or one within it has a default."""
    return any(each.get("default") is not None for each in every(schema))


def has_extensions(schema: Object) -> bool:
    """Return whether a schema or one within it has an extension of Kubernetes that requires structural schemas."""
    return any(
        each.get("x-kubernetes-preserve-unknown-fields") is not None
        or each.get("x-kubernetes-list-type") is not None
        or any(each.get(name) for name in _EXTENSIONS)
        for each in every(schema)
    )


def unsupported(schema: Object) -> str:
    """Return the reason why a schema has no structural form at all, empty if it has one."""
    for each in every(schema):
        for name in UNSUPPORTED:
            if each.get(name) or (name == "additionalItems" and each.get(name) is not None):
                return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
        if each.get("x-kubernetes-preserve-unknown-fields") is False:
            return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
        if isinstance(each.get("items"), list) and each["items"]:
            return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return ""
