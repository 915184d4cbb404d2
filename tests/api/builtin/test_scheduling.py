"""Validation of PriorityClasses."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_reasons


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "system-x"}, "value": 1},
            [("metadata.name", "Forbidden")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes
