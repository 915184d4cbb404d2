"""Moments: revisions, times and ages, and rejected texts."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.moments import LONGEST, epoch_of, parse_moment, written


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12345", 12345),
        ("0", 0),
        ("20260131", 20260131),  # eight digits are a revision; a date has dashes
        ("9223372036854775807", 2**63 - 1),
        ("2026-01-31", at(2026, 1, 31)),
        ("2026-01-31T09:30", at(2026, 1, 31, 9, 30)),
        ("2026-01-31T09:30:15", at(2026, 1, 31, 9, 30, 15)),
        ("2026-01-31T09:30:15Z", at(2026, 1, 31, 9, 30, 15)),
        ("2026-01-31t09:30:15z", at(2026, 1, 31, 9, 30, 15)),
        ("2026-01-31 09:30:15", at(2026, 1, 31, 9, 30, 15)),
        ("2026-01-31T09:30:15.5Z", at(2026, 1, 31, 9, 30, 15, 500_000)),
        ("2026-01-31T09:30:15.123456789Z", at(2026, 1, 31, 9, 30, 15, 123_456)),
        ("2026-01-31T09:30:15+02:00", at(2026, 1, 31, 7, 30, 15)),
        ("2026-01-31T23:30:15-05:30", at(2026, 2, 1, 5, 0, 15)),
        ("2026-01-31T09:30:15+0200", at(2026, 1, 31, 7, 30, 15)),
        ("2016-12-31T23:59:60Z", at(2017, 1, 1)),
        ("-2h", timedelta(hours=2)),
        ("2h", timedelta(hours=2)),
        ("-1h30m", timedelta(hours=1, minutes=30)),
        ("3d", timedelta(days=3)),
        ("1w2d", timedelta(days=9)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("-0s", timedelta()),
        ("99999999999999h", LONGEST),
    ],
)
def test_what_is_a_moment(text: str, expected: object) -> None:
    assert parse_moment(text) == expected


NOW = at(2026, 1, 31, 9, 30, 15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yesterday", at(2026, 1, 30)),
        ("today", at(2026, 1, 31)),
        ("yesterday 14:05", at(2026, 1, 30, 14, 5)),
        ("today 14:05", at(2026, 1, 31, 14, 5)),
        ("9:05", at(2026, 1, 31, 9, 5)),
        ("09:30:15", at(2026, 1, 31, 9, 30, 15)),
        ("14:05", at(2026, 1, 30, 14, 5)),
        ("14:05Z", at(2026, 1, 30, 14, 5)),
        ("2h ago", timedelta(hours=2)),
        ("@1763740800", at(2025, 11, 21, 16)),
        ("1763740800", 1763740800),
    ],
)
def test_moments_of_the_calendar(text: str, expected: object) -> None:
    assert parse_moment(text, now=NOW) == expected
    if isinstance(expected, datetime) and not text.startswith("@"):
        with pytest.raises(ValueError, match="is no moment"):
            parse_moment(text)


@pytest.mark.parametrize(
    "text", ["25:00", "9:75", "yesterday2", "yesterday ", "today:05", " ago", "12345 ago", "@", "@x"]
)
def test_other_texts_are_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="is no moment"):
        parse_moment(text, now=NOW)


def test_numbers_that_are_seconds_or_milliseconds() -> None:
    assert epoch_of(1763740800) == epoch_of(1763740800000) == at(2025, 11, 21, 16)
    assert epoch_of(12345) is epoch_of(20260131) is epoch_of(2**63 - 1) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-",
        "h",
        "2x",
        "2h ",
        " 2h",
        "+2h",
        "--2h",
        "2h-1m",
        "1e3s",
        "-12345",
        "1.5",
        ".5h",
        "9223372036854775808",
        "99999999999999999999",
        "2026-13-01",
        "2026-02-30",
        "2026-1-1",
        "2026-01-31T",
        "2026-01",
        "2026-01-31T24:00:00Z",
        "2026-01-31T09:60:00Z",
        "2026-01-31T09:30:61Z",
        "2026-01-31T09:30:15+24:00",
        "2026-01-31T09:30:15+02:60",
        "2026-01-31Z",
        "0000-01-01",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:60Z",
        "١٢",
        "2026-01-31T09:30:00Z\n",
        "12345\n",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no moment"):
        parse_moment(text)


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)), st.integers(-1439, 1439))
def test_a_time_written_is_read_back(naive: datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_moment(written(moment)) == moment
    assert parse_moment(moment.isoformat()) == moment


@given(st.text(max_size=30))
def test_no_text_is_a_bug(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_moment(text)
