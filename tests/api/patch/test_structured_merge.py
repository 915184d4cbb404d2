"""The merge of a configuration, and sets from an older schema, along the types of custom resources."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.custom.version import object_type
from kubechronicle.api.patch.structured_merge import merge, reconcile

TEXT = {"type": "string"}
ANY = {"x-kubernetes-preserve-unknown-fields": True}
KIND = object_type(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "plain": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT}},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}},
                    "deep": {"type": "object", "properties": {"whole": {"type": "array", "items": TEXT}}},
                    "any": ANY,
                    "entries": {"type": "object", "additionalProperties": TEXT},
                },
            }
        },
    }
)


@pytest.mark.parametrize("depth", [0, 9])
@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ({"plain": {"a": "1", "b": "2"}}, {"plain": {"b": "2", "a": "1"}}, {"plain": {"a": "1", "b": "2"}}),
        ({"any": {"n": 1}}, {"any": {"n": 1.0}}, {"any": {"n": 1.0}}),
        ({"any": {"n": True}}, {"any": {"n": 1}}, {"any": {"n": 1}}),
        ({"any": {}, "plain": {}}, {"any": {}, "plain": {}}, {"any": {}, "plain": {}}),
        ({"list": [{"a": "1"}]}, {"list": [{"a": "1"}]}, {"list": [{"a": "1"}]}),
        ({"entries": {"x": "1"}}, {"entries": {"y": "2"}}, {"entries": {"x": "1", "y": "2"}}),
    ],
)
def test_equal_parts_are_merged_like_others(live: Any, applied: Any, merged: Any, depth: int) -> None:
    result = merge({"spec": live}, {"spec": applied}, KIND, depth)
    assert orjson.dumps(result) == orjson.dumps({"spec": merged})


def test_a_field_that_became_atomic_is_owned_as_a_whole() -> None:
    below: dict[str, Any] = {".": {}, "f:a": {}}
    fields = {
        "f:spec": {
            "f:plain": below,
            "f:whole": below,
            "f:list": {".": {}, 'k:{"a":"1"}': {}},
            "f:deep": {"f:whole": {'v:"1"': {}}},
            "f:any": below,
        }
    }
    assert reconcile(fields, KIND) == {
        "f:spec": {"f:plain": below, "f:whole": {}, "f:list": {}, "f:deep": {"f:whole": {}}, "f:any": below}
    }


def test_a_set_without_atomic_fields_stays_the_same() -> None:
    fields = {"f:spec": {"f:plain": {"f:a": {}}, "f:entries": {"f:x": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}}
    assert reconcile(fields, KIND) is fields


KEYED = object_type(
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {}, "a": TEXT, "b": TEXT}},
            }
        },
    }
)


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        # The same keys in the same order: in pairs.
        ("x1 y2", "x3 y4", "x3 y4"),
        # Another order, another number, and keys that are repeated in the live object.
        ("x1 y2", "y3 x4", "y3 x4"),
        ("x1 y2 z3", "y4", "x1 y4 z3"),
        ("x1 x2", "x3", "x3"),
    ],
)
def test_items_are_merged_by_their_key(live: str, applied: str, merged: str) -> None:
    def items(text: str, field: str, **more: str) -> Any:
        return {"items": [{"name": word[0], field: word[1:], **more} for word in text.split()]}

    found = merge(items(live, "a"), items(applied, "a"), KEYED)
    assert found == items(merged, "a")
    found = merge(items(live, "a", b="kept"), items(applied, "a"), KEYED)
    assert [item["name"] for item in found["items"]] == [word[0] for word in merged.split()]
    if live != "x1 x2":  # items that share a key are replaced as one
        assert all(item["b"] == "kept" for item in found["items"])


def test_keys_of_other_classes_are_no_pairs() -> None:
    live = {"items": [{"name": 1, "a": "x"}, {"name": "1", "a": "y"}]}
    applied = {"items": [{"name": True, "a": "z"}, {"name": "1", "a": "y"}]}
    names = [item["name"] for item in merge(live, applied, KEYED)["items"]]
    assert {name.__class__ for name in names} == {int, bool, str}
