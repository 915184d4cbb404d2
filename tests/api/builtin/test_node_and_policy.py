"""Validation of RuntimeClasses.

Validation of PodDisruptionBudgets.
"""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import rejections_of
from rejections import VALID, causes_of_change, rejection_causes, rejection_reasons


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        ("node.k8s.io/v1/runtimeclasses", {"handler": "A"}, [("handler", "Invalid")]),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


def test_tolerations_must_differ_apart_from_their_seconds() -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    both = [{**toleration, "tolerationSeconds": 5}, {**toleration, "tolerationSeconds": 6}]
    found = rejections_of("node.k8s.io/v1/runtimeclasses", {"handler": "h", "scheduling": {"tolerations": both}})
    assert found == [
        'scheduling.tolerations[1]: Duplicate value: {"Key":"k","Operator":"Exists","Value":"","Effect":"NoExecute",'
        '"TolerationSeconds":6}'
    ]


def test_operators_of_a_disabled_feature_are_named() -> None:
    body = {"handler": "h", "scheduling": {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]}}
    assert rejections_of("node.k8s.io/v1/runtimeclasses", body) == [
        'scheduling.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'
    ]


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "policy/v1/poddisruptionbudgets",
            {"spec": {"minAvailable": "150%"}},
            "spec.minAvailable",
            'Invalid value: "150%": must not be greater than 100%',
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


def test_conditions_of_a_budget_are_checked() -> None:
    path = "policy/v1/poddisruptionbudgets"
    status = {"conditions": [{"type": "Ready", "reason": "/x", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    found = rejection_causes(path, VALID[path], {**VALID[path], "status": status}, "status")
    assert [field for field, _ in found] == ["status.conditions[0].status", "status.conditions[0].reason"]
