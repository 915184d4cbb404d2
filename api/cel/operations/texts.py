"""The text of any simple value: the result of ``string(x)``, and ``null``."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.cel.operations.conversions import (
    bool_to_string,
    bytes_to_string,
    double_to_string,
    int_to_string,
)
from kubechronicle.api.cel.operations.times import format_duration, format_timestamp
from kubechronicle.api.cel.values import Duration, Timestamp, type_name


def to_text(value: Any) -> str:
    """Return the text of a bool, number, string, bytes, time, type or null; for any other value its type's name.

    EvaluationError for bytes that are not UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return bool_to_string(value)
    if isinstance(value, int):
        return int_to_string(value)
    if isinstance(value, float):
        return double_to_string(value)
    if isinstance(value, bytes):
        return bytes_to_string(value)
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if value is None:
        return "null"
    return str(value.name) if type_name(value) == "type" else type_name(value)
