"""Validation of roles."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_causes, rejection_reasons


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


def test_an_aggregation_selector_that_does_not_parse() -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": "In"}]}
    found = rejection_causes(
        "rbac.authorization.k8s.io/v1/clusterroles", {"aggregationRule": {"clusterRoleSelectors": [{}, selector]}}
    )
    path = "aggregationRule.clusterRoleSelectors[1]"
    assert [field for field, _ in found] == [f"{path}.matchExpressions[0].values", path]
    assert found[1][1] == "Invalid value: null: invalid label selector."
