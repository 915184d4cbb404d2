"""Tests of the quick ways through checks: they hold for the same values as the full ones."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.schema.compiled import compile_schema


def fails(schema: dict[str, Any], value: Any) -> bool:
    found = compile_schema({"type": "object", "properties": {"a": schema}}).validate({"a": value})
    return bool(found)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("text_format", ["", "int32", "int64"])
def test_integers_at_their_limits(exclusive: bool, text_format: str) -> None:
    schema = {"type": "integer", "minimum": -2, "maximum": 3, "format": text_format}
    schema |= {"exclusiveMinimum": exclusive, "exclusiveMaximum": exclusive}
    valid = [value for value in range(-5, 7) if not fails(schema, value)]
    assert valid == (list(range(-1, 3)) if exclusive else list(range(-2, 4)))


def test_integers_beside_their_format() -> None:
    assert [fails({"type": "integer", "format": "int32"}, value) for value in (2**31 - 1, 2**31, -(2**31))] == [
        False,
        True,
        False,
    ]
    assert [fails({"type": "integer", "maximum": 2**60}, value) for value in (2**53, 2**60, 2**60 + 2)] == [
        False,
        False,
        True,
    ]
    assert fails({"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 9}, 4)


def test_either_type_of_an_int_or_string() -> None:
    schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    assert [fails(schema, value) for value in (1, "1", True, [1])] == [False, False, True, True]
    bounded = {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string", "maxLength": 2}]}
    assert [fails(bounded, value) for value in (5, 6, "ab", "abc")] == [False, True, False, True]


def test_patterns_of_texts_outside_ascii() -> None:
    assert not fails({"type": "string", "pattern": "^ä+$"}, "ää")
    assert fails({"type": "string", "pattern": "^a+$"}, "aä")
    assert not fails({"type": "string", "pattern": ""}, "")
    assert not fails({"type": "string", "pattern": "^$"}, "")
