"""Differences of printed records."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.common.go_shapes import difference, printed_metadata, record, selector


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


def test_metadata_is_printed_in_the_order_of_its_types() -> None:
    owner = {"uid": "u", "name": "n", "kind": "k", "apiVersion": "v1"}
    entry = {"subresource": "s", "time": "t", "manager": "m"}
    printed = printed_metadata({"managedFields": [entry], "ownerReferences": [owner], "labels": {"b": "1", "a": "2"}})
    assert str(printed) == str(
        {
            "labels": {"a": "2", "b": "1"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "k", "name": "n", "uid": "u"}],
            "managedFields": [{"manager": "m", "time": "t", "subresource": "s"}],
        }
    )


def test_internal_types_print_empty_lists_and_selectors_omit_them() -> None:
    assert record({"values": []}, "NodeSelectorRequirement") == {"Key": "", "Operator": "", "Values": []}
    assert record({}, "NodeSelectorRequirement") == {"Key": "", "Operator": "", "Values": None}
    assert selector({"matchLabels": {}, "matchExpressions": [{"key": "a", "operator": "In", "values": []}]}) == {
        "matchExpressions": [{"key": "a", "operator": "In"}]
    }
