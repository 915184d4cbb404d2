"""Lengths of time as Go writes and reads them (time.Duration, so also metav1.Duration): ``1h30m``, ``-1.5s``, ``0``.

Values are whole nanoseconds in 64 bits.
"""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.errors.field_errors import go_quote

NANOSECOND, MICROSECOND, MILLISECOND, SECOND = 1, 10**3, 10**6, 10**9
_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MAX: Final = 2**63 - 1


def parse(text: str) -> int:
    """Nanoseconds. ValueError with the text of time.ParseDuration."""
    sign, rest = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise _invalid(text)
    total = at = 0
    while at < len(rest):
        match = _PART.match(rest, at)
        assert match is not None
        whole, fraction, unit = match.groups()
        if not whole and not (fraction or "")[1:]:
            raise _invalid(text)
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quote(text)}")
        if unit not in _UNITS:
            raise ValueError(f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        size = _UNITS[unit]
        total += int(whole or 0) * size
        if fraction and fraction != ".":
            total += int(fraction[1:]) * size // 10 ** (len(fraction) - 1)
        if total > _MAX + (sign < 0):
            raise _invalid(text)
        at = match.end()
    return sign * total


def _invalid(text: str) -> ValueError:
    return ValueError(f"time: invalid duration {go_quote(text)}")


def text_of(nanoseconds: int) -> str:
    """As Duration.String: ``1h0m0s``, ``2.5s``, ``300ms``, ``0s``."""
    sign, left = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if left < SECOND:
        if not left:
            return "0s"
        unit, size = next(each for each in (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", 1)) if left >= each[1])
        return f"{sign}{_decimal(left, size)}{unit}"
    minutes, left = divmod(left, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(left, SECOND)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    """``value / unit`` with as many digits as it takes."""
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


# -- format durations --------------------------------------------------------------------------------------------------
#
# Durations of the format ``duration``: those of Go, and phrases such as ``1 day 2 hours``.
#
# Source: go-openapi/strfmt ``duration.go``.


_FORMAT_PART: Final = re.compile(r"(?<![0-9])([0-9]++)[\t\n\f\r ]*+([A-Za-zµ]+)")
_HOUR: Final = 3600 * SECOND
_FORMAT_UNITS: Final = (
    (("ns", "nano"), NANOSECOND),
    (("us", "µs", "micro"), MICROSECOND),
    (("ms", "milli"), MILLISECOND),
    (("s", "sec"), SECOND),
    (("m", "min"), 60 * SECOND),
    (("h", "hr", "hour"), _HOUR),
    (("d", "day"), 24 * _HOUR),
    (("w", "wk", "week"), 7 * 24 * _HOUR),
)
"""Names of units, of which the last may be a prefix, and their nanoseconds."""
_MAX_INT: Final = "9223372036854775807"


def parse_format(text: str) -> int | None:
    """Return nanoseconds in 64 bits, as Go adds them; None if the text has not the format.

    >>> parse_format("1d"), parse_format("90m"), parse_format("soon")
    (86400000000000, 5400000000000, None)
    """
    try:
        return parse(text)
    except ValueError:
        pass
    total, holds = 0, False
    for number, unit in _FORMAT_PART.findall(text):
        digits = number.lstrip("0")
        if (len(digits), digits) > (len(_MAX_INT), _MAX_INT):
            return None
        for names, length in _FORMAT_UNITS:
            if unit.lower() in names or unit.lower().startswith(names[-1]):
                total, holds = total + int(digits or "0") * length, True
    return (total + 2**63) % 2**64 - 2**63 if holds else None
