"""Warnings about definitions: formats that no validation knows.

Source: apiextensions-apiserver ``pkg/registry/customresourcedefinition/strategy.go`` and
``pkg/apiserver/validation/formats.go``.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.apiextensions.hub import hub
from kubechronicle.api.builtin.apiextensions.subschemas import every
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.strategy.strategy import MOST_WARNINGS
from kubechronicle.api.values.objects import Object

_OF_STRINGS: Final = frozenset(
    (
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5",
        "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date",
        "duration", "datetime", "k8sshortname", "k8slongname",
    )
)  # fmt: skip
"""Formats of strings, without dashes."""
_OF_NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_known(kind: str, shape: str) -> bool:
    """Return whether a format is known for a type; "" is any type."""
    if kind in ("", "string"):
        return shape.replace("-", "") in _OF_STRINGS
    return shape in _OF_NUMBERS.get(kind, ())


def _unknown_formats(obj: Object, limit: int) -> list[str]:
    found: list[str] = []
    for schema in hub(obj["spec"]).schemas():
        for each in every(schema):
            shape = each.get("format")
            if shape and not is_known(each.get("type", ""), shape):
                found.append(shape)
                if len(found) >= limit:
                    return found
    return found


def definition_warnings(new: Object, old: Object | None) -> list[str]:
    """Warn about each unknown format that the old definition does not have."""
    if old is None:
        return [f"unrecognized format {go_quote(shape)}" for shape in _unknown_formats(new, MOST_WARNINGS)]
    held = set(_unknown_formats(old, 1 << 30))
    found = [shape for shape in _unknown_formats(new, 1 << 30) if shape not in held]
    return [f"unrecognized format {go_quote(shape)}" for shape in found[:MOST_WARNINGS]]
