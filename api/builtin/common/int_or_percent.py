"""Validation of fields that hold a number or a percentage, such as bounds of workloads and budgets."""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.builtin.common.checks import NOT_NEGATIVE
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.values import names

_PERCENT: Final = re.compile(r"[0-9]+%\Z")


def int_or_percent(value: int | str, field: str) -> list[Cause]:
    """Check that a value is a number that is not negative, or a percentage."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(field, value, NOT_NEGATIVE)]
    if _PERCENT.match(value):
        return []
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [invalid_value(field, value, names.regex_message(message, "[0-9]+%", "1%", "93%"))]


def at_most_100_percent(value: int | str, field: str) -> list[Cause]:
    """Reject a percentage above 100 %."""
    if isinstance(value, str) and _PERCENT.match(value) and int(value[:-1]) > 100:
        return [invalid_value(field, value, "must not be greater than 100%")]
    return []


def is_zero(value: int | str) -> bool:
    """Return whether a number or percentage is zero; invalid text counts as zero."""
    if isinstance(value, int):
        return value == 0
    number = value[:-1] if _PERCENT.match(value) else value
    return not number.isdigit() or int(number) == 0
