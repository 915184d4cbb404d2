"""Timestamps and durations: parsing, formatting, and their parts.

Timestamps follow RFC 3339, durations Go's form (``1h30m``, ``0.5s``). Source: cel-go ``common/types/timestamp.go``,
``duration.go``; Go ``time.Parse``, ``time.ParseDuration``.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.values import INT_MAX, NANOS, Duration, Timestamp

_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_DAY: Final = 86_400

_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3_600 * NANOS,
}
_AMOUNT: Final = re.compile("([0-9]*)(?:\\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,5}")


def parse_timestamp(text: str) -> Timestamp | None:
    """Return the timestamp of a text, None if it has none. The result may lie outside the years 1 to 9999."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if hour > 23 or minute > 59 or second > 59:
        return None
    days = _days(year, month, day)
    if days is None:
        return None
    seconds = days * _DAY + hour * 3_600 + minute * 60 + second
    if found[8]:
        ahead_hours, ahead_minutes = int(found[9]), int(found[10])
        if ahead_hours > 24 or ahead_minutes > 60:
            return None
        ahead = ahead_hours * 3_600 + ahead_minutes * 60
        seconds -= ahead if found[8] == "+" else -ahead
    return Timestamp(seconds * NANOS + int((found[7] or "0")[:9].ljust(9, "0")))


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970. The year 0 is a leap year before the year 1."""
    try:
        if year == 0:
            return datetime.date(4, month, day).toordinal() - 366 - 3 * 365 - _EPOCH
        return datetime.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def format_timestamp(value: Timestamp) -> str:
    """Return a text such as ``2024-02-29T12:00:00.5Z``: in UTC, without trailing zeros of the fraction."""
    moment = _datetime(value)
    fraction = value.nanoseconds % NANOS
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{digits}Z"


def parse_duration(text: str) -> Duration | None:
    """Return the duration of a text, None if it has none, or none that fits 64 bits of nanoseconds."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Duration(0)
    total = 0
    position = 0
    while position < len(rest):
        found = _AMOUNT.match(rest, position)
        if found is None or not (found[1] or found[2]) or len(found[0]) > 100:
            return None
        unit = _UNITS[found[3]]
        total += int(found[1] or "0") * unit
        if found[2]:
            total += int(found[2]) * unit // 10 ** len(found[2])
        position = found.end()
    if position == 0 or total > INT_MAX + (sign < 0):
        return None
    return Duration(sign * total)


def format_duration(value: Duration) -> str:
    """Return the duration in seconds, such as ``1.5s``."""
    whole, rest = divmod(abs(value.nanoseconds), NANOS)
    seconds = float(whole) + rest / NANOS
    text = f"{Decimal(repr(-seconds if value.nanoseconds < 0 else seconds)):f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}s"


# -- parts ------------------------------------------------------------------------------------------------------------


def _datetime(value: Timestamp) -> datetime.datetime:
    days, second = divmod(value.nanoseconds // NANOS, _DAY)
    midnight = datetime.datetime.fromordinal(days + _EPOCH)
    return midnight + datetime.timedelta(seconds=second)


def _local(value: Timestamp, zone: str) -> datetime.datetime:
    try:
        moment = _datetime(value)
        if zone in ("", "UTC"):
            return moment
        if ":" in zone:
            return moment + _offset(zone)
        return moment.replace(tzinfo=datetime.UTC).astimezone(_zone(zone))
    except OverflowError as error:
        raise EvaluationError("timestamp overflow") from error


def _offset(zone: str) -> datetime.timedelta:
    hours, _, minutes = zone.partition(":")
    for part in (hours, minutes):
        if not _NUMBER.fullmatch(part):
            raise EvaluationError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    if not 0 <= int(minutes) <= 59:
        raise EvaluationError(f"timezone offset minutes out of range [0, 59]: {zone}")
    ahead = int(minutes)
    return datetime.timedelta(minutes=int(hours) * 60 + (-ahead if zone[0] == "-" else ahead))


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise EvaluationError(f"unknown time zone {name}") from error


Part = Callable[..., int]
"""(timestamp, zone = "UTC") -> the part."""


def _part(read: Callable[[datetime.datetime], int]) -> Part:
    return lambda value, zone="UTC": read(_local(value, zone))


TIMESTAMP_PARTS: Final[dict[str, tuple[str, Part]]] = {
    "getFullYear": ("timestamp_to_year", _part(lambda moment: moment.year)),
    "getMonth": ("timestamp_to_month", _part(lambda moment: moment.month - 1)),
    "getDayOfYear": ("timestamp_to_day_of_year", _part(lambda moment: moment.timetuple().tm_yday - 1)),
    "getDayOfMonth": ("timestamp_to_day_of_month", _part(lambda moment: moment.day - 1)),
    "getDate": ("timestamp_to_day_of_month_1_based", _part(lambda moment: moment.day)),
    "getDayOfWeek": ("timestamp_to_day_of_week", _part(lambda moment: moment.isoweekday() % 7)),
    "getHours": ("timestamp_to_hours", _part(lambda moment: moment.hour)),
    "getMinutes": ("timestamp_to_minutes", _part(lambda moment: moment.minute)),
    "getSeconds": ("timestamp_to_seconds_tz", _part(lambda moment: moment.second)),
    "getMilliseconds": (
        "timestamp_to_milliseconds",
        lambda value, zone="UTC": (_local(value, zone), value.nanoseconds % NANOS // 1_000_000)[1],
    ),
}
"""Function -> (overload id, implementation)."""


def _whole(unit: int) -> Callable[[Duration], int]:
    def count(value: Duration) -> int:
        units = abs(value.nanoseconds) // unit
        return -units if value.nanoseconds < 0 else units

    return count


DURATION_PARTS: Final[dict[str, tuple[str, Callable[[Duration], int]]]] = {
    "getHours": ("duration_to_hours", _whole(3_600 * NANOS)),
    "getMinutes": ("duration_to_minutes", _whole(60 * NANOS)),
    "getSeconds": ("duration_to_seconds", _whole(NANOS)),
    "getMilliseconds": ("duration_to_milliseconds", _whole(1_000_000)),
}
