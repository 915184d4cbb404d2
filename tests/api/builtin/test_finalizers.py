"""Names of finalizers: which kinds demand a domain."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import VALID, rejection_reasons

SUBJECT = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "g"}
BINDING = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}
EVENT = {"involvedObject": {"namespace": "n"}}
NEW_EVENT = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "regarding": {"namespace": "n"},
    "type": "Normal",
    "reason": "r",
    "action": "a",
    "reportingController": "c",
    "reportingInstance": "i",
}
UNQUALIFIED = {"metadata": {"finalizers": ["mine"]}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("coordination.k8s.io/v1/leases", VALID["coordination.k8s.io/v1/leases"]),
        ("node.k8s.io/v1/runtimeclasses", {"handler": "h"}),
        ("policy/v1/poddisruptionbudgets", VALID["policy/v1/poddisruptionbudgets"]),
        ("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {}),
        ("/v1/events", EVENT),
    ],
)
def test_kinds_that_accept_unqualified_finalizers(path: str, body: dict[str, Any]) -> None:
    assert rejection_reasons(path, {**body, **UNQUALIFIED}) == []
    assert rejection_reasons(path, body, {**body, **UNQUALIFIED}) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rbac.authorization.k8s.io/v1/roles", {"rules": []}),
        ("rbac.authorization.k8s.io/v1/clusterroles", {"rules": []}),
        ("rbac.authorization.k8s.io/v1/rolebindings", {**BINDING, "subjects": [SUBJECT]}),
        ("events.k8s.io/v1/events", NEW_EVENT),
        ("/v1/configmaps", {}),
    ],
)
def test_kinds_that_demand_a_domain(path: str, body: dict[str, Any]) -> None:
    refused = ("metadata.finalizers[0]", "Invalid")
    assert refused in rejection_reasons(path, {**body, **UNQUALIFIED})
    assert refused in rejection_reasons(path, body, {**body, **UNQUALIFIED})
