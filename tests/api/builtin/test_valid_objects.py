"""One valid object of each kind is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import VALID, causes_of_change, rejection_reasons

POD: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}


HOOK = {
    "name": "a.b.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://example.com"},
}


VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/"}}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize("path", VALID)
def test_valid_objects_are_accepted(path: str) -> None:
    assert causes_of_change(path, {}) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/pods", {"spec": POD}),
        ("/v1/persistentvolumes", {"spec": VOLUME}),
        ("/v1/persistentvolumeclaims", {"spec": CLAIM}),
        ("storage.k8s.io/v1/storageclasses", {"provisioner": "a.example.com"}),
        ("/v1/resourcequotas", {"spec": {"hard": {"pods": "3", "requests.cpu": "1", "count/jobs.batch": "2"}}}),
        ("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"webhooks": [HOOK]}),
        ("networking.k8s.io/v1/networkpolicies", {"spec": {"podSelector": {}}}),
    ],
)
def test_more_valid_objects_are_accepted(path: str, body: dict[str, Any]) -> None:
    assert rejection_reasons(path, body) == []
