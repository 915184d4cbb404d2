"""Numbers of custom objects in the forms of Go: as unstructured JSON is decoded, and as it is written.

Go decodes integers of 64 bits, and any other number as a float. It writes 1.0 as 1. Most objects have none of these
numbers, which one search of their JSON tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

_MAYBE_WIDE: Final = re.compile(rb"9[2-9][0-9]{17}|1[0-9]{19}").search
_MAYBE_FLOAT: Final = re.compile(rb"[.][0-9]|[0-9][eE]").search
"""Numbers of that kind, or texts that look like them."""

_LEAST_WITH_EXPONENT: Final = 1e21
"""The least number that Go writes with an exponent."""


def as_decoded(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a decoded object with integers beyond 64 bits as floats."""
    try:
        found: Any = _MAYBE_WIDE(orjson.dumps(obj))
    except TypeError:  # an integer beyond what orjson writes, from YAML
        found = True
    return _changed(obj, _decoded) if found else obj


def as_written(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with whole floats as integers."""
    return obj if _MAYBE_FLOAT(orjson.dumps(obj)) is None else _changed(obj, _written)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if value.__class__ is dict:
        return {name: _changed(item, change) for name, item in value.items()}
    if value.__class__ is list:
        return [_changed(item, change) for item in value]
    return change(value)


def _decoded(value: Any) -> Any:
    return float(value) if value.__class__ is int and not -(2**63) <= value < 2**63 else value


def _written(value: Any) -> Any:
    if value.__class__ is float and value.is_integer() and abs(value) < _LEAST_WITH_EXPONENT:
        return int(Decimal(repr(value)))  # the shortest digits, then zeros
    return value
