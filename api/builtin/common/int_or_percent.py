"""Fields that hold a number or a percentage, as bounds of workloads and budgets do."""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.builtin.common.checks import NOT_NEGATIVE
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.values import names

_PERCENT: Final = re.compile(r"[0-9]+%\Z")


def int_or_percent(value: int | str, field: str) -> list[Cause]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(field, value, NOT_NEGATIVE)]
    if _PERCENT.match(value):
        return []
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [invalid_value(field, value, names.regex_message(message, "[0-9]+%", "1%", "93%"))]


def at_most_100_percent(value: int | str, field: str) -> list[Cause]:
    """A percentage is a hundred at most."""
    if isinstance(value, str) and _PERCENT.match(value) and int(value[:-1]) > 100:
        return [invalid_value(field, value, "must not be greater than 100%")]
    return []


def is_zero(value: int | str) -> bool:
    """Tell whether a number or percentage is none; what is neither counts as none, too."""
    if isinstance(value, int):
        return value == 0
    number = value[:-1] if _PERCENT.match(value) else value
    return not number.isdigit() or int(number) == 0
