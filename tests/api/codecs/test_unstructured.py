"""JSON of custom objects: the bytes of Go's encoder."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import unstructured


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "B": 2, "a": {"é": 1, "z": 2, "😀": 3}}, '{"B":2,"a":{"z":2,"é":1,"😀":3},"b":1}'),
        ({"<a>": "&"}, r'{"\u003ca\u003e":"\u0026"}'),
        ("\u2028\u2029\x7f\x01\b\f\n\t\"\\/", r'"\u2028\u2029' + '\x7f' + r'\u0001\b\f\n\t\"\\/"'),
        ([1e20, 123456789012345680000.0, 1.5e19], "[100000000000000000000,123456789012345680000,15000000000000000000]"),
        ([1e21, 1e-7, 0.1], "[1e+21,1e-7,0.1]"),
        ("1e+20]", '"1e+20]"'),
        ({"f": 1e20, "t": "1e+20]"}, '{"f":100000000000000000000,"t":"1e+20]"}'),
    ],
)  # fmt: skip
def test_values_have_the_text_of_go(value: Any, text: str) -> None:
    assert unstructured.encode(value).decode() == text


def test_indented_json_has_the_text_of_go() -> None:
    text = '{\n  "a": [\n    "\\u003c"\n  ],\n  "b": {},\n  "c": []\n}'
    assert unstructured.encode({"c": [], "b": {}, "a": ["<"]}, pretty=True).decode() == text


def test_typed_values_keep_the_order_of_their_keys() -> None:
    assert unstructured.encode_typed({"kind": "Table", "apiVersion": "<"}) == rb'{"kind":"Table","apiVersion":"\u003c"}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(1e-4, 1e12) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    assert json.loads(unstructured.encode(value)) == value


@given(st.dictionaries(st.text(), st.integers(0, 9)))
def test_keys_are_sorted_by_their_bytes(value: dict[str, int]) -> None:
    assert list(json.loads(unstructured.encode(value))) == sorted(value, key=str.encode)
