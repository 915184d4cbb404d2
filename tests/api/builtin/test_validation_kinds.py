"""Validation of kinds beyond workloads: a body with something wrong, and the causes it is refused with."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import builtin_registry

CTX = WriteContext(now="2026-01-01T00:00:00Z", uid="u", manager="m", namespace="n", name="a.b.example.com")
POD: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
HOOK = {
    "name": "a.b.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://example.com"},
}
VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/"}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLASS = {"provisioner": "a.example.com"}
PORTS = {"ports": [{"port": 80}]}


def refusal(path: str, body: dict[str, Any], *, after: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    """Return (field, reason) of a creation's causes, or of those of an update to ``after``."""
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    ctx = CTX if rt.namespaced else WriteContext(now=CTX.now, uid="u", manager="m", name=CTX.name)

    def decoded(content: dict[str, Any], *, create: bool) -> dict[str, Any]:
        content = {**content, "metadata": {"name": CTX.name, **content.get("metadata", {})}}
        return pipeline.decode_object(rt, content, ctx, create=create)[0]

    try:
        stored = pipeline.prepare_create(rt, decoded(body, create=True), ctx).object
        if after is not None:
            stored["metadata"]["resourceVersion"] = "1"
            wanted = {**after, "metadata": {**after.get("metadata", {}), "resourceVersion": "1"}}
            pipeline.prepare_update(rt, stored, decoded(wanted, create=False), ctx)
    except StatusError as error:
        return [
            (cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in (error.details or {})["causes"]
        ]
    return []


GOOD = [
    ("/v1/pods", {"spec": POD}),
    ("/v1/persistentvolumes", {"spec": VOLUME}),
    ("/v1/persistentvolumeclaims", {"spec": CLAIM}),
    ("storage.k8s.io/v1/storageclasses", CLASS),
    ("/v1/resourcequotas", {"spec": {"hard": {"pods": "3", "requests.cpu": "1", "count/jobs.batch": "2"}}}),
    ("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"webhooks": [HOOK]}),
    ("networking.k8s.io/v1/networkpolicies", {"spec": {"podSelector": {}}}),
]


@pytest.mark.parametrize(("path", "body"), GOOD)
def test_good_objects_are_good(path: str, body: dict[str, Any]) -> None:
    assert refusal(path, body) == []


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "/v1/pods",
            {"spec": {**POD, "volumes": [{"name": "v", "nfs": {"path": "x"}}]}},
            [("spec.volumes[0].nfs.server", "Required"), ("spec.volumes[0].nfs.path", "Invalid")],
        ),
        (
            "/v1/pods",
            {"spec": {**POD, "tolerations": [{"operator": "Exists", "value": "v"}]}},
            [("spec.tolerations[0].operator", "Invalid")],
        ),
        ("/v1/pods", {"spec": {**POD, "hostname": "a.b"}}, [("spec.hostname", "Invalid")]),
        ("/v1/persistentvolumes", {"spec": {**VOLUME, "hostPath": {"path": "/x"}}}, [("spec.nfs", "Forbidden")]),
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
        ("storage.k8s.io/v1/storageclasses", {"provisioner": ""}, [("provisioner", "Required")]),
        (
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            {"webhooks": [HOOK, HOOK]},
            [("webhooks[1].name", "Duplicate")],
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            {"spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}},
            [("spec.ingress[0].from[0]", "Required")],
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            {"addressType": "IPv4", "endpoints": [{"addresses": ["2001:db8::1"]}], "ports": []},
            [("endpoints[0].addresses", "Invalid")],
        ),
        (
            "rbac.authorization.k8s.io/v1/roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            [("rules[0].nonResourceURLs", "Invalid")],
        ),
        (
            "scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "system-x"}, "value": 1},
            [("metadata.name", "Forbidden")],
        ),
        ("node.k8s.io/v1/runtimeclasses", {"handler": "A"}, [("handler", "Invalid")]),
    ],
)
def test_something_wrong(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert refusal(path, body) == causes


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        ("/v1/pods", {"spec": POD}, {"spec": {**POD, "hostname": "x"}}, [("spec", "Forbidden")]),
        (
            "/v1/pods",
            {"spec": POD},
            {"spec": {**POD, "containers": [*POD["containers"], {"name": "d", "image": "i"}]}},
            [("spec.containers", "Forbidden")],
        ),
        ("/v1/pods", {"spec": POD}, {"spec": {"containers": [{"name": "c", "image": "j"}]}}, []),
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
        ("storage.k8s.io/v1/storageclasses", CLASS, {"provisioner": "b.example.com"}, [("provisioner", "Invalid")]),
    ],
)
def test_what_may_change(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert refusal(path, before, after=after) == causes
