"""Access reviews: their validation, on its own."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.authorization.access_reviews import (
    validate_local_subject_access,
    validate_subject_access,
)

Requirement = dict[str, Any]


def causes_of(field: str, *requirements: Requirement) -> list[tuple[str, str]]:
    attributes = {"verb": "get", "resource": "pods", field: {"requirements": list(requirements)}}
    review = {"metadata": {}, "spec": {"user": "u", "resourceAttributes": attributes}}
    prefix = f"spec.resourceAttributes.{field}.requirements"
    causes = validate_subject_access(review)
    assert all(cause.field.startswith(prefix) for cause in causes)
    return [(cause.reason, cause.field.removeprefix(prefix)) for cause in causes]


@pytest.mark.parametrize("field", ["fieldSelector", "labelSelector"])
def test_an_unknown_operator_is_accepted(field: str) -> None:
    assert causes_of(field, {"key": "a", "operator": "Near"}, {"key": "a"}) == []


def test_keys_and_values_of_label_requirements_are_checked() -> None:
    found = causes_of(
        "labelSelector",
        {"key": "a/b/c", "operator": "Near"},
        {"key": "a", "operator": "In", "values": ["a b", "x"]},
        {"key": "a", "operator": "Exists", "values": ["a b"]},
    )
    assert found == [
        ("FieldValueInvalid", "[0].key"),
        ("FieldValueInvalid", "[1].values[0]"),
        ("FieldValueForbidden", "[2].values"),
        ("FieldValueInvalid", "[2].values[0]"),
    ]


def test_any_key_is_a_field() -> None:
    found = causes_of("fieldSelector", {"key": "a/b/c", "operator": "In", "values": ["a b"]}, {"operator": "In"})
    assert found == [("FieldValueRequired", "[1].key"), ("FieldValueRequired", "[1].values")]


def test_metadata_must_be_empty_and_empty_maps_are() -> None:
    spec = {"user": "u", "resourceAttributes": {"verb": "get"}}
    accepted = {"labels": {}, "finalizers": [], "managedFields": [{"manager": "m"}]}
    assert validate_subject_access({"metadata": accepted, "spec": spec}) == []
    for metadata in ({"name": "x"}, {"namespace": "x"}):
        causes = validate_subject_access({"metadata": metadata, "spec": spec})
        assert [cause.field for cause in causes] == ["metadata"]
    spec = {"user": "u", "resourceAttributes": {"verb": "get", "namespace": "x"}}
    assert validate_local_subject_access({"metadata": {"namespace": "x"}, "spec": spec}) == []


def test_refused_metadata_is_shown_in_the_order_of_kubernetes() -> None:
    entry = {"fieldsV1": {"f:spec": {"f:user": {}, "f:uid": {}}}, "manager": "m"}
    review = {"metadata": {"managedFields": [entry], "name": "a"}, "spec": {"user": "u", "nonResourceAttributes": {}}}
    (cause,) = validate_subject_access(review)
    assert cause.message.startswith(
        'Invalid value: {"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:uid":{},"f:user":{}}}}]}'
    )
