"""Validation of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import causes_of_change


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
