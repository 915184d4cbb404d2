"""Operators on numbers, texts, lists and times: checked 64-bit arithmetic, and comparisons across number types.

Errors are EvaluationError with cel-go's texts. Source: cel-go ``common/types`` (overflow.go, compare.go, each type).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from kubechronicle.api.cel.errors import CostExceeded, EvaluationError, no_such_overload
from kubechronicle.api.cel.values import (
    INT_MAX,
    INT_MIN,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    UINT_MAX,
    Duration,
    Timestamp,
    UInt,
)
from kubechronicle.api.values.allowance import ALLOWANCE

MAX_ITEMS: Final = 1_000_000
"""The longest list that ``+`` may make: doubling a list costs little budget, but memory."""
SHORT: Final = 1000
"""Characters, bytes or items of a sum that are not counted: a program has far too few sums for many of these."""

Text = TypeVar("Text", str, bytes)


def checked_int(number: int) -> int:
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("integer overflow")


def checked_uint(number: int) -> UInt:
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise EvaluationError("unsigned integer overflow")


def checked_duration(nanoseconds: int) -> Duration:
    if INT_MIN <= nanoseconds <= INT_MAX:
        return Duration(nanoseconds)
    raise EvaluationError("duration overflow")


def checked_timestamp(nanoseconds: int) -> Timestamp:
    if TIMESTAMP_MIN <= nanoseconds <= TIMESTAMP_MAX:
        return Timestamp(nanoseconds)
    raise EvaluationError("timestamp overflow")


# -- int --------------------------------------------------------------------------------------------------------------


def add_int(left: int, right: int) -> int:
    number = left + right
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("integer overflow")


def subtract_int(left: int, right: int) -> int:
    return checked_int(left - right)


def multiply_int(left: int, right: int) -> int:
    return checked_int(left * right)


def divide_int(left: int, right: int) -> int:
    """Return the quotient, rounded towards zero."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo_int(left: int, right: int) -> int:
    """Return the remainder of `divide_int`, which has the sign of ``left``."""
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def negate_int(number: int) -> int:
    return checked_int(-number)


# -- uint -------------------------------------------------------------------------------------------------------------


def add_uint(left: UInt, right: UInt) -> UInt:
    return checked_uint(int(left) + int(right))


def subtract_uint(left: UInt, right: UInt) -> UInt:
    return checked_uint(int(left) - int(right))


def multiply_uint(left: UInt, right: UInt) -> UInt:
    return checked_uint(int(left) * int(right))


def divide_uint(left: UInt, right: UInt) -> UInt:
    if right == 0:
        raise EvaluationError("division by zero")
    return UInt(int(left) // int(right))


def modulo_uint(left: UInt, right: UInt) -> UInt:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return UInt(int(left) % int(right))


# -- double -----------------------------------------------------------------------------------------------------------


def divide_double(left: float, right: float) -> float:
    """Divide by IEEE 754: a division by zero is an infinity, zero by zero is nan."""
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return float("nan")
    negative = (left < 0) != (str(right)[0] == "-")
    return float("-inf") if negative else float("inf")


# -- texts, lists and times -------------------------------------------------------------------------------------------


def add_text(left: Text, right: Text) -> Text:
    """Join strings or bytes. Their cost does not bound them where the checker knows no types."""
    size = len(left) + len(right)
    if size > SHORT:
        ALLOWANCE.get().make(size)
    return left + right


def add_list(left: list[Any] | tuple[Any, ...], right: list[Any] | tuple[Any, ...]) -> list[Any]:
    size = len(left) + len(right)
    if size > MAX_ITEMS:
        raise CostExceeded
    if size > SHORT:
        ALLOWANCE.get().make(8 * size)
    if type(left) is not list and hasattr(left, "cel_add"):
        return cast(list[Any], left.cel_add(right))
    return [*left, *right]


def add_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanoseconds + right.nanoseconds)


def subtract_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanoseconds - right.nanoseconds)


def add_to_timestamp(left: Timestamp, right: Duration) -> Timestamp:
    return checked_timestamp(left.nanoseconds + right.nanoseconds)


def add_timestamp(left: Duration, right: Timestamp) -> Timestamp:
    return add_to_timestamp(right, left)


def subtract_from_timestamp(left: Timestamp, right: Duration) -> Timestamp:
    return checked_timestamp(left.nanoseconds - right.nanoseconds)


def between_timestamps(left: Timestamp, right: Timestamp) -> Duration:
    return checked_duration(left.nanoseconds - right.nanoseconds)


# -- order ------------------------------------------------------------------------------------------------------------


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison that rounds a whole number to a double before comparing it with one, as Python does not."""

    def check(left: Any, right: Any) -> bool:
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
            if left != left or right != right:
                raise EvaluationError("NaN values cannot be ordered")
        return compare(left, right)

    return check


COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": _ordered(operator.lt),
    "_<=_": _ordered(operator.le),
    "_>_": _ordered(operator.gt),
    "_>=_": _ordered(operator.ge),
}


def negate(value: bool) -> bool:
    if value is True or value is False:
        return not value
    raise no_such_overload()
