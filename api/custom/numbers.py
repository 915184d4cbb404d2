"""Numbers of custom objects in the forms of Go: as unstructured JSON is decoded, and as it is written.

Go decodes integers of 64 bits, and any other number as a float. It writes 1.0 as 1. Most objects have none of these
numbers, which their JSON tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeVar

import orjson

from kubechronicle.api.values.objects import is_writable

_Json = TypeVar("_Json")

_ENDS: Final = (rb"\.0[],}]", rb"e\+[12][0-9][],}]", rb"e1[0-9][],}]", rb"e2[0-9][],}]")
_WHOLE: Final = tuple(re.compile(end).search for end in _ENDS)
"""Ends of whole floats as orjson writes them; older releases write no plus sign. Each begins with two letters, which
makes the search several times faster."""


def as_decoded(obj: _Json) -> _Json:
    """Return a decoded value with integers beyond 64 bits as floats."""
    try:
        orjson.dumps(obj, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:  # an integer beyond 53 bits
        decoded: _Json = _changed(obj, _decoded)
        return decoded
    return obj


def as_written(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with whole floats as integers. One beyond 64 bits stays a float: 1e20."""
    if not has_whole_floats(orjson.dumps(obj)):
        return obj
    written: dict[str, Any] = _changed(obj, _written)
    return written


def has_whole_floats(text: bytes) -> bool:
    """Tell whether the compact JSON of an object has floats that ``as_written`` changes, or may change."""
    return any(find(text) is not None for find in _WHOLE)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if value.__class__ is dict:
        return {name: _changed(item, change) for name, item in value.items()}
    if value.__class__ is list:
        return [_changed(item, change) for item in value]
    return change(value)


def _decoded(value: Any) -> Any:
    return float(value) if value.__class__ is int and not -(2**63) <= value < 2**63 else value


def _written(value: Any) -> Any:
    if value.__class__ is float and value.is_integer() and is_writable(value):
        return int(Decimal(repr(value)))  # the shortest digits, then zeros
    return value
