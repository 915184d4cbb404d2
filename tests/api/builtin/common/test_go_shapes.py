"""Differences of printed records."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.common.go_shapes import difference


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({"A": 1}, {"A": 1}, ""),
        ({"A": 1}, {"A": 2}, '@@ -1,3 +1,3 @@\n {\n- "A": 1\n+ "A": 2\n }\n'),
        (None, {"A": "<"}, '@@ -1 +1,3 @@\n-null\n+{\n+ "A": "\\u003c"\n+}\n'),
    ],
)
def test_difference(old: Any, new: Any, text: str) -> None:
    assert difference(old, new) == text
