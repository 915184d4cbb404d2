"""Validation of RuntimeClasses."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import rejections_of
from rejections import rejection_reasons


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
