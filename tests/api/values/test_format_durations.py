"""Durations of the format ``duration``."""

from __future__ import annotations

import pytest

from kubechronicle.api.values import durations

HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1h", HOUR), ("1.5h", HOUR * 3 // 2), ("-1h", -HOUR), ("0", 0), ("1d", 24 * HOUR), ("2 weeks", 336 * HOUR),
        ("1 day 2 hours", 26 * HOUR), ("3 MINUTES", HOUR // 20), ("P1D", 24 * HOUR), ("9223372036854775807 h", -HOUR),
        ("9223372036854775808 d", None), ("soon", None), ("", None), ("1", None),
    ],
)  # fmt: skip
def test_durations_are_those_of_go_and_phrases(text: str, length: int | None) -> None:
    assert durations.parse_format(text) == length
