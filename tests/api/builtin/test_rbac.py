"""Validation of roles."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_causes, rejection_reasons

from kubechronicle.api.builtin.rbac import bootstrap_policy
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.features.versions import effective_version
from kubechronicle.api.values.objects import Object


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
        return {role["metadata"]["name"]: role["rules"] for role in bootstrap_policy.cluster_roles(gates)}

    group, resource = "certificates.k8s.io", "clustertrustbundles"
    bundles = {"verbs": ["get", "list", "watch"], "apiGroups": [group], "resources": [resource]}
    off = FeatureGates(given={"ClusterTrustBundle": False, "ClusterTrustBundleProjection": False})
    less, usual = rules(off), rules(FeatureGates())
    assert less.keys() < usual.keys()
    assert usual["system:cluster-trust-bundle-discovery"] == [bundles]
    assert [rule for rule in usual["system:node"] if rule not in less["system:node"]] == [bundles]
    bound = {each["metadata"]["name"] for each in bootstrap_policy.cluster_role_bindings(off)}
    assert "system:cluster-trust-bundle-discovery" not in bound
    paths = rules(FeatureGates(given={"ComponentFlagz": False}))["system:monitoring"][0]["nonResourceURLs"]
    assert "/flagz" not in paths
    assert "/statusz" in paths


def test_an_older_version_has_its_own_roles() -> None:
    older = FeatureGates(effective_version(["1.34"], []))
    roles = {role["metadata"]["name"]: role["rules"] for role in bootstrap_policy.cluster_roles(older)}
    assert "system:cluster-trust-bundle-discovery" not in roles
