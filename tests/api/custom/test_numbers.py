"""Numbers of custom objects as Go decodes and writes them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.custom.numbers import as_decoded, as_written


@pytest.mark.parametrize(
    ("number", "expected"),
    [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (2**63, float(2**63)), (10**30, 1e30), (2**53 + 1, 2**53 + 1)],
)
def test_integers_beyond_64_bits_are_floats(number: int, expected: float) -> None:
    found = as_decoded({"a": [{"b": number}]})["a"][0]["b"]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (1e16, b"10000000000000000"),
        (12345678901234567890.0, b"12345678901234567000"),
        (1e20, b"1e+20"),
        (0.5, b"0.5"),
        (1e21, b"1e+21"),
    ],
)
def test_whole_floats_are_written_as_integers(number: float, text: bytes) -> None:
    written: Any = as_written({"a": [number]})["a"][0]
    assert orjson.dumps(written) == text


def test_an_object_without_such_numbers_is_not_copied() -> None:
    obj = {"a": 1, "b": "1.5e3", "c": [True, None], "image": "name1:v1.0", "host": "node12", "half": [0.5, 1e-10]}
    assert as_decoded(obj) is obj
    assert as_written(obj) is obj
