"""JSON documents with repeated keys, read as Go reads them into a type: the value, and the complaints in their order.

Go reports a repeated or unknown field where it meets it. It decodes the second value of a field into the first: maps
and structs are merged, everything else is replaced. The value of an unknown field is skipped, whatever it contains.

    {"data": {"a": "1"}, "x": 1, "data": {"b": "2"}}  ->  {"data": {"a": "1", "b": "2"}},
                                                          unknown field "x", duplicate field "data"

Here a document's objects are tuples of (key, value), as codecs hand them over.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.types import AnyType, ListType, MapType, ObjectType, Type

Found = dict[str, None]
"""Complaints in their order, each once."""


def read(document: Any, kind: ObjectType) -> tuple[dict[str, Any], list[str]]:
    """Return (value, complaints) of an object of this type. The value lacks unknown fields."""
    complaints: Found = {}
    value: dict[str, Any] = _read(document, kind, "", None, complaints)
    return value, list(complaints)


def plain(document: Any) -> Any:
    """Return the value of a document without a type: the last of repeated keys counts."""
    if document.__class__ is tuple:
        return {name: plain(item) for name, item in document}
    if document.__class__ is list:
        return [plain(item) for item in document]
    return document


def _read(document: Any, kind: Type, path: str, held: Any, complaints: Found) -> Any:
    if document.__class__ is tuple:
        if isinstance(kind, ObjectType):
            return _read_object(document, kind, path, held if held.__class__ is dict else {}, complaints)
        if isinstance(kind, MapType):
            return _read_map(document, kind.value, path, held if held.__class__ is dict else {}, complaints)
    elif document.__class__ is list and isinstance(kind, ListType):
        return [
            _read(item, kind.item, f"{path}[{index}]", None, complaints) if item.__class__ in _CONTAINERS else item
            for index, item in enumerate(document)
        ]
    return plain(document)


def _read_object(
    document: tuple[tuple[str, Any], ...],
    kind: ObjectType,
    path: str,
    value: dict[str, Any],
    complaints: Found,
) -> dict[str, Any]:
    prefix = f"{path}." if path else ""
    seen: set[str] = set()
    for name, item in document:
        field = kind.fields.get(name)
        if field is None:
            complaints[f"unknown field {go_quote(prefix + name)}"] = None
            continue
        if name in seen:
            complaints[f"duplicate field {go_quote(prefix + name)}"] = None
        seen.add(name)
        if item.__class__ in _CONTAINERS and not isinstance(field.type, AnyType):
            value[name] = _read(item, field.type, prefix + name, value.get(name), complaints)
        else:
            value[name] = plain(item)
    return value


def _read_map(
    document: tuple[tuple[str, Any], ...], kind: Type, path: str, value: dict[str, Any], complaints: Found
) -> dict[str, Any]:
    seen: set[str] = set()
    for name, item in document:
        where = f"{path}.{name}"
        if name in seen:
            complaints[f"duplicate field {go_quote(where)}"] = None
        seen.add(name)
        value[name] = _read(item, kind, where, None, complaints)
    return value


_CONTAINERS = frozenset((tuple, list))
