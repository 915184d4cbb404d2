"""Text output: YAML with marks, durations, and the names of objects in arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.ops.client.commands.blame import lines, update_marks
from kubechronicle.ops.client.output import ago, format_duration
from kubechronicle.ops.client.subjects import split_words, without_sign
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import yaml_text

TEXTS = st.sampled_from(
    ["", "y", "1e3", "a: b", "- x", "two\nlines\n", "\n", "tab\t\n", "null", "2026-01-01", "# no", " x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=4))
def test_the_lines_of_blame_add_up_to_the_yaml(value: dict[str, Any]) -> None:
    text = "".join(f"{line}\n" for _, line in lines(update_marks(None, value, 1)))
    assert text == yaml_text(value)


def test_strings_stay_strings() -> None:
    assert yaml_text({"a": "y", "b": "1e3", "c": "true"}) == 'a: "y"\nb: "1e3"\nc: "true"\n'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (700, "11m"),
        (3700, "1h1m"),
        (40_000, "11h"),
        (90_000, "1d1h"),
        (2_000_000, "23d"),
    ],
)
def test_durations(seconds: int, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


def test_ago() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert ago("2026-01-01T11:58:30.5Z", now) == "1m29s ago"
    assert ago("2026-01-01T12:00:01Z", now) == "0s ago"
    assert ago("", now) == ""


def test_durations_may_have_a_sign() -> None:
    assert [without_sign(each) for each in ("-2h", "-1h30m", "-n", "-5", "--at", "2h", "-A", "-2x")] == [
        "2h",
        "1h30m",
        "-n",
        "-5",
        "--at",
        "2h",
        "-A",
        "2x",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["pod/a"], ("pod", "a")), (["pod", "a"], ("pod", "a")), (["pods"], ("pods", "")), (["a.b/c"], ("a.b", "c"))],
)
def test_names_of_objects(words: list[str], expected: tuple[str, str]) -> None:
    assert split_words(words) == expected


@pytest.mark.parametrize("words", [["a/b/c"], ["/a"], ["a/"], ["a", "b", "c"], ["a/b", "c"]])
def test_other_words_are_rejected(words: list[str]) -> None:
    with pytest.raises(OperatorError, match="is not an object; name it as TYPE/NAME"):
        split_words(words)
