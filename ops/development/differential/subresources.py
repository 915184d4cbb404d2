"""Requests on subresources: status, scale, and those with rules of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.nodes import make


@dataclass(frozen=True, slots=True)
class Request:
    """A request on a subresource; ``edit`` says that the body is the object with a change of its own."""

    name: str
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


def scale_of(rng: Random, resource: Resource) -> dict[str, Any]:
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


def bodies(rng: Random, resource: Resource, name: str, stored: Mapping[str, Any]) -> list[Request]:
    """Return the requests to choose from on a subresource with rules of its own; none for one without."""
    metadata = {"name": "${name}", "namespace": "$NS"}
    if name == "scale":
        return [
            Request(name, "PUT", scale_of(rng, resource)),
            Request(name, "GET"),
            Request(name, "merge", {"spec": {"replicas": rng.choice([3, -3, "x", None])}}),
            Request(
                name,
                "apply",
                {
                    "apiVersion": "autoscaling/v1",
                    "kind": "Scale",
                    "metadata": {"name": "${name}"},
                    "spec": {"replicas": 4},
                },
            ),
            Request(name, "json", [{"op": "replace", "path": "/spec/replicas", "value": rng.choice([1, 2, -1, "1"])}]),
        ]
    if name == "eviction":
        options = rng.choice(
            [
                None,
                {},
                {"gracePeriodSeconds": 0},
                {"preconditions": {"uid": "x"}},
                {"dryRun": ["All"]},
                {"propagationPolicy": "x"},
            ]
        )
        return [
            Request(
                name,
                "POST",
                {
                    "apiVersion": rng.choice(["policy/v1", "policy/v1", "policy/v1beta1", "v1"]),
                    "kind": "Eviction",
                    "metadata": rng.choice([metadata, metadata, {"name": "other"}, {}]),
                    "deleteOptions": options,
                },
            )
        ]
    if name == "binding":
        return [
            Request(
                name,
                "POST",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": rng.choice(
                        [
                            metadata,
                            metadata,
                            {"name": "other"},
                            {},
                            {**metadata, "annotations": {"a": "b"}, "labels": {"c": "d"}},
                        ]
                    ),
                    "target": rng.choice(
                        [
                            {"kind": "Node", "name": "n"},
                            {"kind": "Node", "name": "n"},
                            {"name": "n"},
                            {"kind": "Pod", "name": "n"},
                            {"kind": "Node"},
                            {},
                            None,
                        ]
                    ),
                },
            )
        ]
    if name == "token":
        return [
            Request(
                name,
                "POST",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "metadata": rng.choice([{}, metadata, {"name": "other"}]),
                    "spec": {
                        "audiences": rng.choice([["a"], [], None, [""], ["a", "a"]]),
                        "expirationSeconds": rng.choice([600, 599, 0, -1, 3600, 4294967297, None, "x"]),
                        "boundObjectRef": rng.choice(
                            [
                                None,
                                None,
                                {"kind": "Pod", "apiVersion": "v1", "name": "none"},
                                {"kind": "Secret", "apiVersion": "v1", "name": ""},
                                {"kind": "X", "apiVersion": "v1", "name": "a"},
                                {"kind": "Node", "apiVersion": "v1", "name": "none"},
                                {},
                            ]
                        ),
                    },
                },
            )
        ]
    if name == "finalize":
        document = copy.deepcopy(dict(stored))
        document["spec"] = rng.choice(
            [
                {"finalizers": ["kubernetes"]},
                {"finalizers": ["example.com/a", "kubernetes"]},
                {"finalizers": ["a"]},
                {"finalizers": []},
                {},
            ]
        )
        return [Request(name, "PUT", document)]
    if name == "approval":
        document = copy.deepcopy(dict(stored))
        condition = {
            "type": rng.choice(["Approved", "Denied", "Failed", "X"]),
            "status": rng.choice(["True", "True", "False", "Unknown", ""]),
            "reason": "r",
            "message": "m",
        }
        document["status"] = {
            "conditions": rng.choice([[condition], [condition, condition], [], [{**condition, "type": ""}]])
        }
        if rng.random() < 0.3:
            document["status"]["certificate"] = "YQ=="
        return [
            Request(name, "PUT", document),
            Request(name, "merge", {"status": document["status"]}),
            Request(name, "GET"),
        ]
    if name in ("resize", "ephemeralcontainers"):
        return [
            Request(name, "PUT", changed_pod(rng, name, stored)),
            Request(name, "strategic", pod_patch(rng, name)),
            Request(name, "GET"),
        ]
    return []


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
