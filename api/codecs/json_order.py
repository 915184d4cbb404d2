"""The order of JSON fields that Go writes: that of the fields of its structs.

Lives here: putting a decoded object into that order. Other code needs no order: a client reads fields by name. Only
errors that show an object need it. The fields of a struct have the order of the facts about types (api/kinds), keys of
maps are sorted.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.codecs import table
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import LIST, MAP, Declared, GoType

__all__ = ["in_go_order", "in_order_of"]

_FIELD_SET = "meta.v1.FieldsV1"
_TYPE: tuple[str, ...] = ("kind", "apiVersion")


def in_go_order(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its fields in Go's order, unchanged if its kind is unknown."""
    name = table.message_for(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    return obj if name is None else in_order_of(name, obj)


def in_order_of(message: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a struct, such as "meta/v1.ObjectMeta", with its fields in Go's order."""
    return _object(value, reading.release().declared(message.replace("/", ".")))


def _object(obj: dict[str, Any], declared: Declared) -> dict[str, Any]:
    fields = declared.members
    ordered: dict[str, Any] = {key: obj[key] for key in _TYPE if key in obj and key not in fields}
    ordered.update((key, _value(obj[key], field.type)) for key, (field, _) in fields.items() if key in obj)
    return {**ordered, **{key: value for key, value in obj.items() if key not in fields}}


def _sorted_fields(value: Any) -> Any:
    """Return a set of field paths with its elements in order."""
    if isinstance(value, dict):
        return {key: _sorted_fields(value[key]) for key in sorted(value)}
    return value


def _value(value: Any, kind: GoType) -> Any:
    if not isinstance(value, dict | list):
        return value
    behind = reading.release().behind(kind)
    if behind.shape == LIST and behind.of is not None and isinstance(value, list):
        return [_value(item, behind.of) for item in value]
    if not isinstance(value, dict):
        return value
    if behind.shape == MAP and behind.of is not None:
        return {key: _value(value[key], behind.of) for key in sorted(value)}
    if behind.name == _FIELD_SET:
        return _sorted_fields(value)
    return _object(value, reading.release().declared(behind.name)) if "." in behind.name else value
