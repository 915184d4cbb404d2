"""The cache of results by clients' texts stays small, for any texts."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kubechronicle.api.codecs.protobuf import _type_meta
from kubechronicle.api.errors.field_errors import Path
from kubechronicle.api.selectors import field_selectors
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.caches import cached


def test_short_texts_are_remembered() -> None:
    worked: list[Any] = []

    @cached(2, longest=3)
    def work(text: str, other: int = 0) -> str:
        """Count the calls."""
        worked.append((text, other))
        if text == "bad":
            raise ValueError(text)
        return text.upper()

    assert work.__doc__ == "Count the calls."
    for text in ("abc", "abcd", "abc", "abcd"):
        assert work(text) == text.upper()
    assert work("abc", 1) == "ABC"
    assert worked == [("abc", 0), ("abcd", 0), ("abcd", 0), ("abc", 1)]
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            work("bad")
    assert len(worked) == 6


@pytest.mark.parametrize(
    "work",
    [
        names.dns_subdomain,
        names.qualified_name,
        lambda text: _refused(quantity.parse, "1" * len(text)),
        lambda text: _refused(quantity.canonical, "1" * len(text)),
        lambda text: field_selectors.label_selector_problem(f"a in ({text})", Path()),
        lambda text: field_selectors.parse_label_selector(f"{'a,' * (len(text) // 20)}b"),
        lambda text: field_selectors.field_terms(f"a={text}"),
        lambda text: _type_meta(b"\x0a\x01v" * (len(text) // 3)),
    ],
)
def test_long_texts_are_not_kept(work: Callable[[str], object]) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5):
            work("x" * (50_000 + number))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()


def _refused(work: Callable[[str], object], text: str) -> None:
    with pytest.raises(quantity.QuantityError):
        work(text)
