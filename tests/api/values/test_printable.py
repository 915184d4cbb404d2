"""Escapes of characters that would act on a terminal, a browser or a log."""

from __future__ import annotations

import json

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import yaml_writer
from kubechronicle.api.history.differences import shown_value
from kubechronicle.api.values.printable import printable, printable_json, printable_lines

HOSTILE = st.sampled_from(
    "\x00\x07\x08\x1b\r\n\t\x7f\x85\x9b\xad\u061c\u200b\u200e\u2028\u2029\u202e\u2066\ufeff\U000e0041"
)
TEXTS = st.text(st.one_of(HOSTILE, st.characters(codec="utf-8"), st.sampled_from("ab :#-'\"\\")), max_size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("café → 日本", "café → 日本"),
        ("a\x1b[2J\r\nb\t", "a\\x1b[2J\\r\\nb\\t"),
        ("\x9b31m\u202egpj.exe\u2066", "\\x9b31m\\u202egpj.exe\\u2066"),
        ("\u2028\U000e0041\ud800", "\\u2028\\U000e0041\\ud800"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.one_of(HOSTILE, st.characters()), max_size=20))
def test_the_result_is_printable(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert printable_lines(text).replace("\n", "").isprintable()


@given(st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_json_keeps_its_values(value: dict[str, str]) -> None:
    for options in (None, orjson.OPT_INDENT_2):
        text = printable_json(orjson.dumps(value, option=options).decode())
        assert text.replace("\n", "").isprintable()
        assert json.loads(text) == value


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.lists(TEXTS, max_size=2)), max_size=3))
def test_yaml_keeps_its_values_and_is_printable(value: dict[str, object]) -> None:
    text = yaml_writer.write(value)
    assert text.replace("\n", "").isprintable()
    assert yaml.load(text, yaml.CSafeLoader) == value


@given(TEXTS)
def test_shown_values_are_printable(value: str) -> None:
    assert shown_value(value).isprintable()
