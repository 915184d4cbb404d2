"""Validation of Leases, and their fields of disabled features."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create
from rejections import causes_of_change


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "coordination.k8s.io/v1/leases",
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds",
            "Invalid value: 0: must be greater than 0",
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


def test_fields_of_disabled_features_are_dropped() -> None:
    spec = {"holderIdentity": "h", "strategy": "OldestEmulationVersion", "preferredHolder": "p"}
    assert create("coordination.k8s.io/v1/leases", {"spec": spec})["spec"] == {"holderIdentity": "h"}
