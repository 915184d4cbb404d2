"""Path elements in messages."""

from __future__ import annotations

import pytest

from kubechronicle.api.managed_fields.field_paths import element_text


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("f:spec", ".spec"),
        ("i:2", "[2]"),
        ('v:"a"', '[="a"]'),
        ('k:{"protocol":"TCP","port":80}', '[port=80,protocol="TCP"]'),
        ('k:{"name":["c",{}]}', '[name=["c",]]'),
        ('k:{"name":{"value":"c"}}', '[name=value="c"]'),
        ('k:{"name":null}', "[name=null]"),
        ("v:true", "[=true]"),
        ("v:1e20", "[=1e+20]"),
    ],
)
def test_elements_are_printed_as_structured_merge_diff_does(element: str, text: str) -> None:
    assert element_text(element) == text
