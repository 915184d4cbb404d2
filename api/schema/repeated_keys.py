"""JSON documents with repeated keys, read as Go reads them into a type: the value, and the complaints in their order.

Go reports a repeated or unknown field where it meets it. It decodes the second value of a field into the first: maps
and structs are merged, everything else is replaced. A replaced value must have the right type, too. The value of an
unknown field is skipped, whatever it contains.

    {"data": {"a": "1"}, "x": 1, "data": {"b": "2"}}  ->  {"data": {"a": "1", "b": "2"}},
                                                          unknown field "x", duplicate field "data"

Here a document's objects are tuples of (key, value), as codecs hand them over.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema import check
from kubechronicle.api.schema.types import AnyType, ListType, MapType, ObjectType, Type
from kubechronicle.api.schema.values import ValueDecodeError

Found = dict[str, None]
"""Complaints in their order, each once."""


def read(document: Any, kind: ObjectType) -> tuple[dict[str, Any], list[str]]:
    """Return (value, complaints) of an object of this type. The value lacks unknown fields.

    TypeMismatch for a value of a wrong type that a later one replaces.
    """
    complaints: Found = {}
    try:
        value: dict[str, Any] = _read(document, kind, "", None, complaints)
    except check.Mismatch as mismatch:
        raise check.TypeMismatch(mismatch.text()) from None
    except ValueDecodeError as error:
        raise check.TypeMismatch(error.text) from None
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
    seen: dict[str, Any] = {}
    for name, item in document:
        field = kind.fields.get(name)
        if field is None:
            complaints[f"unknown field {go_quote(prefix + name)}"] = None
            continue
        try:
            if name in seen:
                complaints[f"duplicate field {go_quote(prefix + name)}"] = None
                _check_replaced(seen[name], field.type)
            seen[name] = item
            if item.__class__ in _CONTAINERS and not isinstance(field.type, AnyType):
                value[name] = _read(item, field.type, prefix + name, value.get(name), complaints)
            else:
                value[name] = plain(item)
        except check.Mismatch as mismatch:
            mismatch.enter(kind, field, name)
            raise
    return value


def _check_replaced(item: Any, kind: Type) -> None:
    """Check a value that the next one of the same name replaces."""
    if item is not None:
        check.check_item(plain(item), kind)


def _read_map(
    document: tuple[tuple[str, Any], ...], kind: Type, path: str, value: dict[str, Any], complaints: Found
) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, item in document:
        where = f"{path}.{name}"
        if name in seen:
            complaints[f"duplicate field {go_quote(where)}"] = None
            _check_replaced(seen[name], kind)
        seen[name] = item
        value[name] = _read(item, kind, where, None, complaints)
    return value


_CONTAINERS = frozenset((tuple, list))
