"""Durations of the format ``duration``: those of Go, and phrases such as ``1 day 2 hours``.

Source: go-openapi/strfmt ``duration.go``.
"""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.values import durations
from kubechronicle.api.values.durations import MICROSECOND, MILLISECOND, NANOSECOND, SECOND

_PART: Final = re.compile(r"(?<![0-9])([0-9]++)[\t\n\f\r ]*+([A-Za-zµ]+)")
_HOUR: Final = 3600 * SECOND
_UNITS: Final = (
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


def parse(text: str) -> int | None:
    """Return nanoseconds in 64 bits, as Go adds them; None if the text has not the format.

    >>> parse("1d"), parse("90m"), parse("soon")
    (86400000000000, 5400000000000, None)
    """
    try:
        return durations.parse(text)
    except ValueError:
        pass
    total, holds = 0, False
    for number, unit in _PART.findall(text):
        digits = number.lstrip("0")
        if (len(digits), digits) > (len(_MAX_INT), _MAX_INT):
            return None
        for names, length in _UNITS:
            if unit.lower() in names or unit.lower().startswith(names[-1]):
                total, holds = total + int(digits or "0") * length, True
    return (total + 2**63) % 2**64 - 2**63 if holds else None
