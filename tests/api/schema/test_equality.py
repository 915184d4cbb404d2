"""Equality of arbitrary JSON: true is not 1, and 1 is not 1.0."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_causes

from kubechronicle.api.managed_fields.field_sets import compare
from kubechronicle.api.schema import types
from kubechronicle.api.schema.equality import holds_json, same_json, unchanged

REVISION = types.object_type("io.k8s.api.apps.v1.ControllerRevision")
POD = types.object_type("io.k8s.api.core.v1.Pod")
CLASS = types.object_type("io.k8s.api.resource.v1.DeviceClass")


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), ({"a": [1]}, {"a": [True]}), ([0], [None])]
)
def test_values_that_python_confuses_differ(one: Any, other: Any) -> None:
    assert not same_json(one, other)
    assert not unchanged({"data": one}, {"data": other}, REVISION)


def test_the_order_of_keys_is_irrelevant() -> None:
    assert same_json({"a": 1, "b": {"c": True, "d": None}}, {"b": {"d": None, "c": True}, "a": 1})


def test_kinds_with_arbitrary_json() -> None:
    assert holds_json(REVISION)
    assert holds_json(CLASS)
    assert not holds_json(POD), "sets of managed fields do not count"


def _class(parameters: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}}


def test_a_change_of_arbitrary_json_has_an_owner() -> None:
    assert compare(_class({"a": 1}), _class({"a": True}), CLASS)[0] == {"f:spec": {"f:config": {}}}
    assert compare(_class({"a": 1}), _class({"a": 1}), CLASS) == ({}, {})


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0)])
def test_data_of_a_controller_revision_is_immutable(before: Any, after: Any) -> None:
    causes = rejection_causes(
        "apps/v1/controllerrevisions", {"revision": 1, "data": {"a": before}}, {"revision": 1, "data": {"a": after}}
    )
    assert [field for field, _ in causes] == ["data"]


@pytest.mark.parametrize("data", [1, "x", [1], True])
def test_data_of_a_new_controller_revision_is_an_object(data: Any) -> None:
    assert rejection_causes("apps/v1/controllerrevisions", {"revision": 1, "data": data}) == [
        ("data", "Required value: data must be a valid JSON object")
    ]
