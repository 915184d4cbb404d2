"""Values of Go that no JSON document has, and that configurations made by expressions may hold.

A policy's configuration is merged by kube-apiserver as values of Go. Its merge knows only those of JSON.
"""

from __future__ import annotations

import calendar
import datetime
from typing import NamedTuple


class GoValue(NamedTuple):
    """A value: its type in Go, and its text in Go's formats ``%v`` and ``%#v``."""

    go_type: str
    printed: str
    syntax: str


NULL = GoValue("structpb.NullValue", "NULL_VALUE", "0")
"""The null of an expression."""


def unsigned(value: int) -> GoValue:
    return GoValue("uint64", str(int(value)), hex(value))


def octets(value: bytes) -> GoValue:
    return GoValue("[]uint8", f"[{' '.join(map(str, value))}]", f"[]uint8{{{', '.join(map(hex, value))}}}")


def duration(nanoseconds: int) -> GoValue:
    minutes, rest = divmod(abs(nanoseconds), 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 10**9:.9f}".rstrip("0").rstrip(".")
    printed = f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    return GoValue("time.Duration", f"-{printed}" if nanoseconds < 0 else printed, str(nanoseconds))


def moment(nanoseconds: int) -> GoValue:
    """Return a time, given as nanoseconds since 1970."""
    seconds, rest = divmod(nanoseconds, 10**9)
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    month = calendar.month_name[at.month]
    numbers = f"{at.day}, {at.hour}, {at.minute}, {at.second}, {rest}"
    return GoValue("time.Time", f"{at} +0000 UTC", f"time.Date({at.year}, time.{month}, {numbers}, time.UTC)")
