"""Validation of roles."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_reasons


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
