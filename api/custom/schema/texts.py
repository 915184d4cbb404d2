"""Go's prints of values, as the errors of kube-openapi contain them."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.errors.field_errors import go_json


def go_value(value: Any) -> Any:
    """Return a value with its keys sorted and whole floats as integers, as Go's encoding/json writes them."""
    if value.__class__ is dict:
        return {name: go_value(value[name]) for name in sorted(value)}
    if value.__class__ is list:
        return [go_value(item) for item in value]
    if value.__class__ is float and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


def bad_value(value: Any) -> Any:
    """Return a value for an error. A number that is the whole value is printed otherwise than one within it."""
    return go_value(value) if value.__class__ in (dict, list) else value


def enum_text(value: Any) -> str:
    """Return an allowed value as the list of supported values names it."""
    return value if isinstance(value, str) else go_json(go_value(value))
