"""Validation of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import VALID, causes_of_change, rejection_causes


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
