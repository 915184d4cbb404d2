"""Selectors of reviews, converted to the text of a request."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.selectors.field_selectors import field_terms, parse_label_selector
from kubechronicle.http.handlers.reviews import field_selector, label_selector


def of(*requirements: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"requirements": [dict(zip(("key", "operator", "values"), each, strict=True)) for each in requirements]}


@pytest.mark.parametrize(
    ("given", "text", "whole"),
    [
        ({}, "", True),
        ({"rawSelector": "a=b,c!=d"}, "a=b,c!=d", True),
        ({"rawSelector": "a"}, "", False),
        (of(("a", "In", ["b"]), ("c", "NotIn", ["d,=\\e"])), "a=b,c!=d\\,\\=\\\\e", True),
        (of(("a", "In", ["b", "c"]), ("d", "In", ["e"])), "d=e", False),
        (of(("a", "In", [])), "", False),
        (of(("a", "Exists", [])), "", False),
        (of(("metadata.name=x,spec.nodeName", "In", ["n"])), "", False),
    ],
)
def test_fields(given: dict[str, Any], text: str, whole: bool) -> None:
    assert field_selector(given) == (text, whole)
    assert field_terms(text) is not None


@pytest.mark.parametrize(
    ("given", "text", "whole"),
    [
        ({}, "", True),
        ({"rawSelector": "a in (b),!c"}, "a in (b),!c", True),
        ({"rawSelector": "a in"}, "", False),
        ({"rawSelector": "a," * 40_000 + "b"}, "", False),
        (
            of(("a", "In", ["b", "c"]), ("d", "NotIn", [""]), ("e", "Exists", []), ("f.g/h", "DoesNotExist", [])),
            "a in (b,c),d notin (),e,!f.g/h",
            True,
        ),
        (of(("a", "In", ["b"]), ("c", "Near", ["d"])), "a in (b)", False),
        (of(("a),b in (c", "Exists", []), ("d", "In", ["e),f"])), "", False),
        (of(("in", "In", ["notin"])), "in in (notin)", True),
    ],
)
def test_labels(given: dict[str, Any], text: str, whole: bool) -> None:
    assert label_selector(given) == (text, whole)
    given_requirements = given.get("requirements")
    if whole and given_requirements is not None:
        assert [each.key for each in parse_label_selector(text).requirements] == sorted(
            each["key"] for each in given_requirements
        )
