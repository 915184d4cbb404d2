"""Access reviews: their validation, on its own.

Validation of roles.
"""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_causes, rejection_reasons

from kubechronicle.api.builtin import rbac
from kubechronicle.api.builtin.reviews import validate_local_subject_access, validate_subject_access
from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.values.objects import Object

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


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "rbac.authorization.k8s.io/v1/roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            [("rules[0].nonResourceURLs", "Invalid")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


def test_a_generate_name_is_checked_as_a_whole_name() -> None:
    body = {"metadata": {"name": "a", "generateName": "."}, "rules": []}
    [(field, message)] = rejection_causes("rbac.authorization.k8s.io/v1/clusterroles", body)
    assert (field, message) == ("metadata.generateName", "Invalid value: \".\": may not be '.'")


def test_an_aggregation_selector_that_does_not_parse() -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": "In"}]}
    found = rejection_causes(
        "rbac.authorization.k8s.io/v1/clusterroles", {"aggregationRule": {"clusterRoleSelectors": [{}, selector]}}
    )
    path = "aggregationRule.clusterRoleSelectors[1]"
    assert [field for field, _ in found] == [f"{path}.matchExpressions[0].values", path]
    assert found[1][1] == "Invalid value: null: invalid label selector."


def test_gates_add_roles_and_rules() -> None:
    def rules(gates: FeatureGates) -> dict[str, list[Object]]:
        return {role["metadata"]["name"]: role["rules"] for role in rbac.cluster_roles(gates)}

    group, resource = "certificates.k8s.io", "clustertrustbundles"
    bundles = {"verbs": ["get", "list", "watch"], "apiGroups": [group], "resources": [resource]}
    off = FeatureGates(given={"ClusterTrustBundle": False, "ClusterTrustBundleProjection": False})
    less, usual = rules(off), rules(FeatureGates())
    assert less.keys() < usual.keys()
    assert usual["system:cluster-trust-bundle-discovery"] == [bundles]
    assert [rule for rule in usual["system:node"] if rule not in less["system:node"]] == [bundles]
    bound = {each["metadata"]["name"] for each in rbac.cluster_role_bindings(off)}
    assert "system:cluster-trust-bundle-discovery" not in bound
    paths = rules(FeatureGates(given={"ComponentFlagz": False}))["system:monitoring"][0]["nonResourceURLs"]
    assert "/flagz" not in paths
    assert "/statusz" in paths


def test_an_older_version_has_its_own_roles() -> None:
    older = FeatureGates(effective_version(["1.34"], []))
    roles = {role["metadata"]["name"]: role["rules"] for role in rbac.cluster_roles(older)}
    assert "system:cluster-trust-bundle-discovery" not in roles
