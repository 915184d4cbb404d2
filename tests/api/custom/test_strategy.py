"""The strategy of custom resources: fields at paths, generations, warnings about finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.strategy import changes_generation, field_at, finalizer_warnings, strategy


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        ({"spec": {"replicas": 3}}, (3, "")),
        ({"spec": {}}, (None, "")),
        ({"spec": None}, (None, "")),
        ({}, (None, "")),
        (
            {"spec": 3},
            (None, ".spec.replicas accessor error: 3 is of the type int64, expected map[string]interface{}"),
        ),
        ({"spec": {"replicas": "a"}}, (None, ".spec.replicas accessor error: a is of the type string, expected int64")),
        (
            {"spec": {"replicas": True}},
            (None, ".spec.replicas accessor error: true is of the type bool, expected int64"),
        ),
        (
            {"spec": {"replicas": None}},
            (None, ".spec.replicas accessor error: <nil> is of the type <nil>, expected int64"),
        ),
        (
            {"spec": {"replicas": {"b": 1, "a": [2]}}},
            (
                None,
                ".spec.replicas accessor error: map[a:[2] b:1] is of the type map[string]interface {}, expected int64",
            ),
        ),
    ],
)
def test_fields_at_paths(obj: dict[str, Any], found: tuple[Any, str]) -> None:
    assert field_at(obj, ".spec.replicas", int) == found


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        ({"metadata": {"name": "b"}, "spec": {"a": 1}}, False),
        ({"metadata": {}, "spec": {"a": 1.0}}, True),
        ({"metadata": {}, "spec": {"a": True}}, True),
        ({"metadata": {}, "spec": {"a": 1}, "more": None}, True),
        ({"metadata": {}}, True),
        ({"metadata": {}, "else": {"a": 1}}, True),
    ],
)
def test_every_change_but_of_metadata_counts(new: dict[str, Any], changes: bool) -> None:
    assert changes_generation(new, {"metadata": {"name": "a"}, "spec": {"a": 1}}) is changes


def test_subresources_decide_on_the_status() -> None:
    with_status, without = strategy({"status": {}}), strategy({"scale": {}})
    assert with_status.status
    assert with_status.reset == (("status",),)
    assert with_status.subresources["status"].reset == (("metadata",), ("spec",))
    assert not without.status
    assert not without.subresources
    assert not without.unconditional_update
    assert not without.create_on_update


def test_only_added_finalizers_are_warned_of() -> None:
    new = {"metadata": {"finalizers": ["old", "a b", "orphan", "x.y/z"]}}
    texts = finalizer_warnings(new, {"metadata": {"finalizers": ["old"]}})
    assert [text.partition(": ")[2].partition(":")[0] for text in texts] == ['"a b"', '"a b"']
    assert finalizer_warnings({"metadata": {}}, None) == []
