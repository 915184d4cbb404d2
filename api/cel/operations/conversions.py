"""Conversions between types: ``int('1')``, ``string(1.5)``, ``type(x)`` and so on.

A failed conversion raises EvaluationError. Source: cel-go ``common/types`` (ConvertToType of each type).
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.operations import times
from kubechronicle.api.cel.operations.arithmetic import checked_int, checked_timestamp, checked_uint
from kubechronicle.api.cel.operations.times import format_duration, format_timestamp
from kubechronicle.api.cel.values import (
    INT_MAX,
    INT_MIN,
    NANOS,
    UINT_MAX,
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    type_name,
)

_INT: Final = re.compile(r"[+-]?[0-9]+")
_UINT: Final = re.compile(r"[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_DOUBLE: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED_DOUBLES: Final = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "nan"})
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_MAX_DIGITS: Final = 400


def _not_convertible(to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{to}'")


def identity(value: Any) -> Any:
    return value


def string_to_int(text: str) -> int:
    if not _INT.fullmatch(text) or len(text) > _MAX_DIGITS or not INT_MIN <= int(text) <= INT_MAX:
        raise _not_convertible("int")
    return int(text)


def string_to_uint(text: str) -> UInt:
    if not _UINT.fullmatch(text) or len(text) > _MAX_DIGITS or int(text) > UINT_MAX:
        raise _not_convertible("uint")
    return UInt(text)


def string_to_double(text: str) -> float:
    if text.lower() in _NAMED_DOUBLES:
        return float(text)
    try:
        if _DOUBLE.fullmatch(text):
            number = float(text)
        elif _HEX_DOUBLE.fullmatch(text):
            number = float.fromhex(text)
        else:
            raise _not_convertible("double")
    except OverflowError as error:
        raise _not_convertible("double") from error
    if math.isinf(number):
        raise _not_convertible("double")
    return number


def string_to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise _not_convertible("bool")
    return _BOOLS[text]


def string_to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def string_to_timestamp(text: str) -> Timestamp:
    moment = times.parse_timestamp(text)
    if moment is None:
        raise _not_convertible("google.protobuf.Timestamp")
    return checked_timestamp(moment.nanoseconds)


def string_to_duration(text: str) -> Duration:
    duration = times.parse_duration(text)
    if duration is None:
        raise _not_convertible("google.protobuf.Duration")
    return duration


def double_to_int(number: float) -> int:
    """Round towards zero. The ends of the range are rejected, because they are no exact doubles."""
    if not float(INT_MIN) < number < float(INT_MAX):
        raise EvaluationError("integer overflow")
    return int(number)


def double_to_uint(number: float) -> UInt:
    if not 0 <= number < float(UINT_MAX):
        raise EvaluationError("unsigned integer overflow")
    return UInt(number)


def int_to_uint(number: int) -> UInt:
    return checked_uint(number)


def uint_to_int(number: UInt) -> int:
    return checked_int(int(number))


def timestamp_to_int(value: Timestamp) -> int:
    return value.nanoseconds // NANOS


def duration_to_int(value: Duration) -> int:
    return value.nanoseconds


def int_to_timestamp(seconds: int) -> Timestamp:
    return checked_timestamp(seconds * NANOS)


def bool_to_string(value: bool) -> str:
    return "true" if value else "false"


def bytes_to_string(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


def int_to_string(number: int) -> str:
    return str(int(number))


def double_to_string(number: float) -> str:
    """Return the shortest text that parses to the number, with an exponent below 1e-4 and from 1e6 on (Go's %g)."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign = "-" if math.copysign(1, number) < 0 else ""
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    point = len(whole) + int(exponent or "0") if whole != "0" else _leading(fraction) + int(exponent or "0")
    digits = digits.rstrip("0") or "0"
    power = point - 1
    if power < -4 or power >= _EXPONENT_FROM:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


_EXPONENT_FROM: Final = 6


def _leading(fraction: str) -> int:
    return len(fraction.lstrip("0")) - len(fraction)


def to_type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


# -- texts -------------------------------------------------------------------------------------------------------------
#
# The text of any simple value: the result of ``string(x)``, and ``null``.


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
