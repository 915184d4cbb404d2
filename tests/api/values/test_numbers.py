"""Whole numbers in JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.values.objects import whole


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (2.0**63, b"9223372036854775808"),
        (-(2.0**63), b"-9223372036854775808"),
        (1e20, b"1e+20"),
        (-1e19, b"-1e+19"),
        (0.5, b"0.5"),
        (7, b"7"),
        ("1.0", b'"1.0"'),
    ],
)
def test_whole_floats_become_integers_as_long_as_json_is_written_of_them(number: Any, text: bytes) -> None:
    assert orjson.dumps(whole(number)) == text
