"""Go's durations: their values, their text, and invalid texts."""

from __future__ import annotations

import pytest

from kubechronicle.api.values.durations import parse, text_of


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("0", 0, "0s"),
        ("5s", 5 * 10**9, "5s"),
        ("+1m30s", 90 * 10**9, "1m30s"),
        ("-1.5h", -5400 * 10**9, "-1h30m0s"),
        ("300ms", 3 * 10**8, "300ms"),
        ("1.5µs", 1500, "1.5µs"),
        ("1us", 1000, "1µs"),
        ("7ns", 7, "7ns"),
        (".5s", 5 * 10**8, "500ms"),
        ("2.s", 2 * 10**9, "2s"),
        ("61.25s", 61_250_000_000, "1m1.25s"),
        ("0s", 0, "0s"),
        ("0.100000000000000000000h", 360 * 10**9, "6m0s"),
        ("-9223372036854775808ns", -(2**63), "-2562047h47m16.854775808s"),
    ],
)
def test_what_it_means_and_how_it_is_written(text: str, nanoseconds: int, written: str) -> None:
    assert parse(text) == nanoseconds
    assert text_of(nanoseconds) == written
    assert parse(written) == nanoseconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        (".s", 'time: invalid duration ".s"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5 s", 'time: unknown unit " s" in duration "5 s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("s", 'time: invalid duration "s"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("9223372036854775808ns", "time: invalid duration"),
    ],
)
def test_what_is_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="time: ") as refused:
        parse(text)
    assert str(refused.value).startswith(why)
