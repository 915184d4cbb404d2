"""Validation of the core kinds other than Pod."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import causes_of_change, rejection_causes, rejection_reasons

VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/"}}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


CLASSED_CLAIM: dict[str, Any] = {**CLAIM, "storageClassName": "x"}


IMMUTABLE_CLAIM = (
    "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims\n"
)


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        ("/v1/services", {"spec": {"ports": None}}, "spec.ports", "Required value"),
        ("/v1/services", {"spec": {"type": "X"}}, "spec.type", 'Unsupported value: "X": supported values: "ClusterIP"'),
        (
            "/v1/secrets",
            {"stringData": {"a b": "c"}},
            "data[a b]",
            'Invalid value: "a b": a valid config key must consist of',
        ),
        (
            "/v1/secrets",
            {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}},
            "data[tls.key]",
            "Required value",
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        ("/v1/persistentvolumes", {"spec": {**VOLUME, "hostPath": {"path": "/x"}}}, [("spec.nfs", "Forbidden")]),
        ("/v1/persistentvolumes", {"spec": {**VOLUME, "local": {"path": "/x"}}}, [("spec.local", "Forbidden")]),
        (
            "/v1/persistentvolumeclaims",
            {"spec": {**CLAIM, "volumeMode": "Z"}},
            [("spec.volumeMode", "NotSupported")],
        ),
        ("/v1/resourcequotas", {"spec": {"hard": {"pods": "1500m"}}}, [("spec.hard[pods]", "Invalid")]),
        (
            "/v1/nodes",
            {"spec": {"taints": [{"key": "a", "effect": "No"}]}},
            [("metadata.taints[0].effect", "NotSupported")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        (
            "/v1/persistentvolumes",
            {"spec": VOLUME},
            {"spec": {**VOLUME, "nfs": {"server": "t", "path": "/"}}},
            [("spec.persistentvolumesource", "Forbidden")],
        ),
        (
            "/v1/persistentvolumeclaims",
            {"spec": CLAIM},
            {"spec": {**CLAIM, "accessModes": ["ReadWriteMany"]}},
            [("spec", "Forbidden")],
        ),
        ("/v1/persistentvolumeclaims", {"spec": CLAIM}, {"spec": {**CLAIM, "volumeName": "v"}}, []),
    ],
)
def test_allowed_and_rejected_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_reasons(path, before, after) == causes


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        (
            "/v1/persistentvolumeclaims",
            {"spec": CLASSED_CLAIM},
            {"spec": {**CLASSED_CLAIM, "accessModes": ["ReadWriteMany"]}},
            [
                (
                    "spec",
                    IMMUTABLE_CLAIM + '@@ -1,6 +1,6 @@\n {\n  "AccessModes": [\n-  "ReadWriteOnce"\n'
                    '+  "ReadWriteMany"\n  ],\n  "Selector": null,\n  "Resources": {\n',
                )
            ],
        ),
        (
            "/v1/nodes",
            {"spec": {"podCIDR": "10.0.0.0/24"}},
            {"spec": {"podCIDR": "10.0.1.0/24"}},
            [("spec.podCIDRs", 'Forbidden: node updates may not change podCIDR except from "" to valid')],
        ),
        ("/v1/nodes", {"spec": {}}, {"spec": {"podCIDR": "10.0.1.0/24"}}, []),
    ],
)
def test_messages_of_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_causes(path, before, after) == causes


def test_capacity_is_printed_by_name() -> None:
    spec = {**VOLUME, "capacity": {"cpu": "1", "a": "1"}}
    found = rejection_causes("/v1/persistentvolumes", {"spec": spec})
    assert ("spec.capacity", 'Unsupported value: {"a":"1","cpu":"1"}: supported values: "storage"') in found


def test_the_scopes_of_a_quota_are_printed_as_kubernetes_holds_them() -> None:
    selector = {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}
    printed = '{"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}'
    assert rejection_causes("/v1/resourcequotas", {"spec": {"hard": {"cpu": "1"}, "scopeSelector": selector}}) == [
        ("spec.scopeSelector.matchExpressions", f"Invalid value: {printed}: unsupported scope applied to resource")
    ]
    for scopes, text in (([], "[]"), (None, "null")):
        assert rejection_causes(
            "/v1/resourcequotas", {"spec": {"scopes": ["BestEffort"]}}, {"spec": {"scopes": scopes}}
        ) == [("spec.scopes", f"Invalid value: {text}: field is immutable")]
