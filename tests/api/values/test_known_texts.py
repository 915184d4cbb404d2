"""Texts and their values: found in both directions, and forgotten if they were not looked up lately."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.values.caches import KnownTexts


def test_texts_that_were_not_looked_up_lately_are_forgotten() -> None:
    known: KnownTexts[dict[str, Any]] = KnownTexts(1000)
    texts = [b"%d" % number + b" " * 400 for number in range(20)]
    first: dict[str, Any] = {"first": 1}
    known.add(texts[0], first)
    for text in texts[1:]:
        known.add(text, {"": text})
        assert known.get(texts[0]) is first
        assert known.text_of(first) == texts[0]
    for text in texts[1:8]:
        known.add(text, {"": text})
    assert known.get(texts[0]) is None
    assert known.text_of(first) is None


def test_a_text_is_that_of_the_very_value() -> None:
    known: KnownTexts[dict[str, Any]] = KnownTexts(1000)
    value: dict[str, Any] = {"a": 1}
    known.add(b"text", value)
    assert known.text_of(value) == b"text"
    assert known.text_of({"a": 1}) is None
