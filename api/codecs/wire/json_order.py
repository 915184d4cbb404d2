"""The order of JSON fields that Go writes: that of the fields of its structs.

Lives here: putting a decoded object into that order. Other code needs no order: a client reads fields by name. Only
errors that show an object need it.

A struct has its fields in the order of their protobuf numbers, with exceptions in `json_order.json`. Keys of maps are
sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kubechronicle.api.codecs.wire import table

__all__ = ["in_go_order", "in_order_of"]

_FIELD_SET = "fieldsv1"
_TYPE: tuple[str, ...] = ("kind", "apiVersion")


def in_go_order(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its fields in Go's order, unchanged if its kind is unknown."""
    name = table.message_for(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    return obj if name is None else _object(obj, name)


def in_order_of(message: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a struct, such as "meta/v1.ObjectMeta", with its fields in Go's order."""
    return _object(value, message)


@cache
def _exceptions() -> Mapping[str, str]:
    document: dict[str, dict[str, str]] = orjson.loads(Path(__file__).with_name("json_order.json").read_bytes())
    return document["messages"]


@cache
def _messages() -> frozenset[str]:
    return frozenset(table.messages())


@cache  # bounded by the table
def _fields(name: str) -> Mapping[str, table.Field]:
    """Return the fields of a message by JSON name, in Go's order, those of inlined structs among them."""
    listed = table.message_named(name).fields
    order = _exceptions().get(name)
    if order is not None:
        places = {field: place for place, field in enumerate(order.split())}
        listed = tuple(sorted(listed, key=lambda field: places.get(field.name or ".", len(places))))
    fields: dict[str, table.Field] = {}
    for field in listed:
        fields.update({field.name: field} if field.name else _fields(field.type))
    return fields


def _object(obj: dict[str, Any], name: str) -> dict[str, Any]:
    fields = _fields(name)
    ordered: dict[str, Any] = {key: obj[key] for key in _TYPE if key in obj and key not in fields}
    ordered.update((key, _value(obj[key], field)) for key, field in fields.items() if key in obj)
    return {**ordered, **{key: value for key, value in obj.items() if key not in fields}}


def _sorted_fields(value: Any) -> Any:
    """Return a set of field paths with its elements in order."""
    if isinstance(value, dict):
        return {key: _sorted_fields(value[key]) for key in sorted(value)}
    return value


def _value(value: Any, field: table.Field) -> Any:
    if field.type == _FIELD_SET:
        return _sorted_fields(value)
    if field.type not in _messages():
        return dict(sorted(value.items())) if field.map and isinstance(value, dict) else value
    if field.map and isinstance(value, dict):
        return {key: _item(value[key], field.type) for key in sorted(value)}
    if field.repeated and isinstance(value, list):
        return [_item(item, field.type) for item in value]
    return _item(value, field.type)


def _item(value: Any, name: str) -> Any:
    return _object(value, name) if isinstance(value, dict) else value
