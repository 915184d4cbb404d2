"""A moment of history in readable form: a revision, a time, or an age.

    12345                          a revision
    2026-01-31T09:30:00.25+02:00   a time (RFC 3339; any number of digits, any zone, T or a space)
    2026-01-31T09:30   2026-01-31  the same in UTC; a date means its first moment
    -2h   2h   2h ago   3d         an age: a Go duration, also with d and w for days and weeks; the sign is optional
    14:05   14:05:30               the last such time of day (UTC)
    yesterday   today 14:05        a day of the calendar (UTC): its first moment, or a time in it
    @1763740800   1763740800000    seconds since 1970, with an @; or a number too high for a revision (epoch_of)

Pure: the log finds the newest revision at a time, and knows the present time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

# A revision, a time (UTC), or an age.
Asked: TypeAlias = "int | datetime | timedelta"

HOW = (
    "a revision (12345), a time (2026-01-31T09:30:00Z, 14:05), a date (2026-01-31, yesterday) or how long ago "
    "(2h, 1h30m, 3d)"
)
MAX_REVISION = 2**63 - 1
LONGEST = timedelta(days=100_000)  # no cluster is older

# Python compiles a pattern at its first use and keeps it: commands that parse no moment start sooner.
_REVISION = r"[0-9]{1,19}"
_TIME = r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?: ?(?:([Zz])|([+-])(\d\d):?(\d\d)))?)?"
_DURATION = r"-?(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h|d|w))+"
_OF_DAY = r"(?:(yesterday|today)(?:[ T](?=\d))?)?(?:(\d?\d):(\d\d)(?::(\d\d))?Z?)?"
_EPOCH = r"@([0-9]{1,13})"
_PART = r"([0-9.]+)([a-zµ]+)"
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip


def parse_moment(text: str, *, now: datetime | None = None) -> Asked:
    """Parse a moment. ValueError with the allowed forms. ``-0s`` is now; only a time can name the future.

    ``now``: the present time, for times of day and days of the calendar; None: they are not allowed.
    """
    text = text.removesuffix(" ago") if re.fullmatch(_DURATION, text.removesuffix(" ago")) else text
    if now is not None and text and (match := re.fullmatch(_OF_DAY, text, re.ASCII)):
        return _time_of_day(text, match, now.astimezone(UTC))
    if match := re.fullmatch(_EPOCH, text):
        return _since_1970(int(match[1]))
    if re.fullmatch(_REVISION, text):
        revision = int(text)
        if revision <= MAX_REVISION:
            return revision
    elif match := re.fullmatch(_TIME, text, re.ASCII):
        try:
            return _time(match)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{text!r} is no moment: {error}") from None
    elif re.fullmatch(_DURATION, text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text))
        return timedelta(seconds=min(seconds, LONGEST.total_seconds()))
    raise ValueError(f"{text!r} is no moment; name {HOW}")


def _time_of_day(text: str, match: re.Match[str], now: datetime) -> datetime:
    day, hour, minute, second = match.groups()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if day == "yesterday":
        midnight -= timedelta(days=1)
    try:
        found = midnight.replace(hour=int(hour or 0), minute=int(minute or 0), second=int(second or 0))
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment: {error}") from None
    return found if day or found <= now else found - timedelta(days=1)


def epoch_of(number: int) -> datetime | None:
    """Return the time that a number is in seconds (10 digits) or milliseconds (13) since 1970; None: it is too low.

    It may be a revision all the same: callers take it for a time only if it is above the newest revision.
    """
    return _since_1970(number) if len(str(number)) in (10, 13) else None


def _since_1970(number: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=number if number >= 10**12 else number * 1000)


def _time(match: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    seconds = int(second or 0)
    # RFC 3339 allows a leap second, which Python and Postgres count as the next second.
    leap = seconds == 60
    # Digits below the log's resolution are cut off: a change in the same microsecond counts as earlier.
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    found = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), 59 if leap else seconds, microsecond, UTC
    )
    if leap:
        found += timedelta(seconds=1)
    if sign:
        if int(zone_hours) > 23 or int(zone_minutes) > 59:
            raise ValueError("there is no such time zone")
        ahead = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
        found = found - ahead if sign == "+" else found + ahead
    return found


def written(moment: datetime) -> str:
    """Return a time in RFC 3339 and UTC, with its significant digits."""
    text = moment.astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"
