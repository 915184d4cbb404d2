"""Validation of HorizontalPodAutoscalers."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import causes_of_change, rejection_causes

SCALER: dict[str, Any] = {
    "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
    "maxReplicas": 3,
}


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {"spec": {"minReplicas": 9}},
            "spec.maxReplicas",
            "Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("path", "spec", "causes"),
    [
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {**SCALER, "behavior": {"scaleUp": {"policies": []}}},
            [("behavior.scaleUp.policies", "Required value: must specify at least one Policy")],
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {
                **SCALER,
                "minReplicas": 5,
                "behavior": {"scaleUp": {"tolerance": "-1", "stabilizationWindowSeconds": 4000}},
            },
            [
                ("maxReplicas", "Invalid value: 3: must be greater than or equal to `minReplicas`"),
                (
                    "behavior.scaleUp.stabilizationWindowSeconds",
                    "Invalid value: 4000: must be less than or equal to 3600",
                ),
                ("behavior.scaleUp.tolerance", 'Invalid value: "-1": must be greater than or equal to 0'),
            ],
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {
                **SCALER,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}],
            },
            [
                (
                    "metrics[0].resource.target.averageUtilization",
                    "Required value: must set either a target raw value or a target utilization",
                )
            ],
        ),
    ],
)
def test_messages_of_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]
