"""Fields of an object that hold any JSON, in the form in which Go encodes it.

A strategic merge patch, an apply and YAML decode the whole object and encode it again: keys become sorted, and whole
numbers lose their fraction. Other writes keep the order of such a field. Only ControllerRevision compares it.
"""

from __future__ import annotations

import functools
from typing import Any

from kubechronicle.api.schema.types import AnyType, object_type
from kubechronicle.api.values.numbers import whole


@functools.cache
def _names(definition: str) -> tuple[str, ...]:
    fields = object_type(definition).fields
    return tuple(name for name, field in fields.items() if isinstance(field.type, AnyType))


def encode_again(obj: dict[str, Any], definition: str) -> None:
    """Bring the free fields of an object into the form of Go's encoder, in place."""
    for name in _names(definition):
        if name in obj:
            obj[name] = encoded(obj[name])


def encoded(value: Any) -> Any:
    """Return a JSON value in the form of Go's encoder."""
    if value.__class__ is dict:
        return {name: encoded(value[name]) for name in sorted(value)}
    if value.__class__ is list:
        return [encoded(item) for item in value]
    return whole(value)
