"""Requests on subresources: status, scale, and those with rules of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.nodes import make


@dataclass(frozen=True, slots=True)
class Request:
    """A request on a subresource. The method of a patch is its format."""

    method: str
    body: Any = None


def status_of(rng: Random, catalogue: Catalogue, resource: Resource, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the object with a generated status, most of the stored one kept."""
    schema = catalogue.resolve(catalogue.of(resource).get("properties", {}).get("status"))
    document = copy.deepcopy(stored)
    made = make(catalogue, rng, schema, "status", rng.choice([1, 2, 3]))
    old = document.get("status")
    document["status"] = {**old, **made} if isinstance(old, dict) and isinstance(made, dict) else made
    if rng.random() < 0.2:
        document.get("metadata", {}).setdefault("labels", {})["from"] = "status"
    if rng.random() < 0.2 and isinstance(document.get("spec"), dict) and document["spec"]:
        document["spec"].pop(rng.choice(list(document["spec"])))
    return document


def scale(rng: Random) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "${name}", "namespace": "$NS"}
    if rng.random() < 0.6:
        metadata["resourceVersion"] = rng.choice(["${rv}", "1", "x"])
    body: dict[str, Any] = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": rng.choice([0, 1, 5, -1, 2147483648, None, "1"])},
    }
    if rng.random() < 0.1:
        body["metadata"]["name"] = "other"
    if rng.random() < 0.1:
        body["spec"] = rng.choice([{}, None, {"x": 1}])
    if rng.random() < 0.1:
        body["apiVersion"], body["kind"] = rng.choice(
            [("extensions/v1beta1", "Scale"), ("apps/v1", "Deployment"), ("", ""), ("autoscaling/v1", "scale")]
        )
    return body


METADATA: Mapping[str, Any] = {"name": "${name}", "namespace": "$NS"}
EVICTION_OPTIONS: tuple[Any, ...] = (
    None, {}, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "x"}}, {"dryRun": ["All"]},
    {"propagationPolicy": "x"},
)  # fmt: skip
TARGETS: tuple[Any, ...] = (
    {"kind": "Node", "name": "n"}, {"kind": "Node", "name": "n"}, {"name": "n"}, {"kind": "Pod", "name": "n"},
    {"kind": "Node"}, {}, None,
)  # fmt: skip
BOUND_OBJECTS: tuple[Any, ...] = (
    None, None, {}, {"kind": "Pod", "apiVersion": "v1", "name": "none"}, {"kind": "X", "apiVersion": "v1", "name": "a"},
    {"kind": "Secret", "apiVersion": "v1", "name": ""}, {"kind": "Node", "apiVersion": "v1", "name": "none"},
)  # fmt: skip
FINALIZED: tuple[Any, ...] = (
    {"finalizers": ["kubernetes"]}, {"finalizers": ["example.com/a", "kubernetes"]}, {"finalizers": ["a"]},
    {"finalizers": []}, {},
)  # fmt: skip


def scales(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    applied = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "${name}"},
        "spec": {"replicas": 4},
    }
    return [
        Request("PUT", scale(rng)),
        Request("GET"),
        Request("merge", {"spec": {"replicas": rng.choice([3, -3, "x", None])}}),
        Request("apply", applied),
        Request("json", [{"op": "replace", "path": "/spec/replicas", "value": rng.choice([1, 2, -1, "1"])}]),
    ]


def evictions(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    body = {
        "apiVersion": rng.choice(["policy/v1", "policy/v1", "policy/v1beta1", "v1"]),
        "kind": "Eviction",
        "metadata": rng.choice([dict(METADATA), dict(METADATA), {"name": "other"}, {}]),
        "deleteOptions": rng.choice(EVICTION_OPTIONS),
    }
    return [Request("POST", body)]


def bindings(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    labelled = {**METADATA, "annotations": {"a": "b"}, "labels": {"c": "d"}}
    metadata = rng.choice([dict(METADATA), dict(METADATA), {"name": "other"}, {}, labelled])
    return [
        Request("POST", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": rng.choice(TARGETS)})
    ]


def tokens(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    spec = {
        "audiences": rng.choice([["a"], [], None, [""], ["a", "a"]]),
        "expirationSeconds": rng.choice([600, 599, 0, -1, 3600, 4294967297, None, "x"]),
        "boundObjectRef": rng.choice(BOUND_OBJECTS),
    }
    metadata = rng.choice([{}, dict(METADATA), {"name": "other"}])
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": spec}
    return [Request("POST", body)]


def finalizations(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    return [Request("PUT", {**copy.deepcopy(dict(stored)), "spec": rng.choice(FINALIZED)})]


def approvals(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
    condition = {
        "type": rng.choice(["Approved", "Denied", "Failed", "X"]),
        "status": rng.choice(["True", "True", "False", "Unknown", ""]),
        "reason": "r",
        "message": "m",
    }
    listed = rng.choice([[condition], [condition, condition], [], [{**condition, "type": ""}]])
    status: dict[str, Any] = {"conditions": listed}
    if rng.random() < 0.3:
        status["certificate"] = "YQ=="
    whole = {**copy.deepcopy(dict(stored)), "status": status}
    return [Request("PUT", whole), Request("merge", {"status": status}), Request("GET")]


def pod_changes(name: str) -> Callable[[Random, Mapping[str, Any]], list[Request]]:
    def changes(rng: Random, stored: Mapping[str, Any]) -> list[Request]:
        return [
            Request("PUT", changed_pod(rng, name, stored)),
            Request("strategic", pod_patch(rng, name)),
            Request("GET"),
        ]

    return changes


def pod_patch(rng: Random, name: str) -> dict[str, Any]:
    if name == "resize":
        amount = rng.choice(["1", "2", "100m", "-1", "0", None, "1.5", "x"])
        return {
            "spec": {
                "containers": [
                    {
                        "name": rng.choice(["c", "c", "a", "new"]),
                        "resources": {
                            rng.choice(["limits", "requests"]): {
                                rng.choice(["cpu", "cpu", "memory", "example.com/gpu", "ephemeral-storage"]): amount
                            }
                        },
                    }
                ]
            }
        }
    container = {"name": rng.choice(["debug", "debug", "c", "A", ""]), "image": rng.choice(["busybox", "busybox", ""])}
    extra: dict[str, Any] = rng.choice(
        [
            {},
            {},
            {"ports": [{"containerPort": 1}]},
            {"resources": {"limits": {"cpu": "1"}}},
            {"targetContainerName": "c"},
            {"targetContainerName": "none"},
            {"livenessProbe": {"exec": {"command": ["x"]}}},
            {"lifecycle": {}},
            {"restartPolicy": "Always"},
            {"volumeMounts": [{"name": "v", "mountPath": "/q", "subPath": "x"}]},
            {"env": [{"name": "A"}], "stdin": True},
        ]
    )
    return {"spec": {"ephemeralContainers": [{**container, **extra}]}}


def changed_pod(rng: Random, name: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    document = copy.deepcopy(dict(stored))
    change = pod_patch(rng, name)["spec"]
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    if name == "resize":
        containers = spec.get("containers") or [{}]
        containers[rng.randrange(len(containers))].update({"resources": change["containers"][0]["resources"]})
        if rng.random() < 0.2:
            containers[0]["image"] = "other"
        if rng.random() < 0.2:
            containers[0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    else:
        spec["ephemeralContainers"] = [*(spec.get("ephemeralContainers") or []), *change["ephemeralContainers"]]
        if rng.random() < 0.2:
            spec["hostname"] = "other"
    return document


# The requests to choose from, by subresource; one that is not here has no rules of its own.
REQUESTS: Mapping[str, Callable[[Random, Mapping[str, Any]], list[Request]]] = {
    "approval": approvals,
    "binding": bindings,
    "ephemeralcontainers": pod_changes("ephemeralcontainers"),
    "eviction": evictions,
    "finalize": finalizations,
    "resize": pod_changes("resize"),
    "scale": scales,
    "token": tokens,
}
