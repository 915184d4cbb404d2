"""Validation causes of objects that the pipeline rejects."""

from __future__ import annotations

import copy
from typing import Any

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.patch import merge_patch
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType, builtin_registry

NOW = "2026-01-01T00:00:00Z"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
ONCE: dict[str, Any] = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
TARGET = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}

VALID: dict[str, dict[str, Any]] = {
    "/v1/pods": {"spec": TEMPLATE["spec"]},
    "/v1/services": {"spec": {"ports": [{"port": 80}]}},
    "/v1/secrets": {"stringData": {"k": "v"}},
    "apps/v1/deployments": {"spec": WORKLOAD},
    "apps/v1/daemonsets": {"spec": WORKLOAD},
    "apps/v1/statefulsets": {"spec": WORKLOAD},
    "batch/v1/jobs": {"spec": {"template": ONCE}},
    "batch/v1/cronjobs": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": ONCE}}}},
    "autoscaling/v2/horizontalpodautoscalers": {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}},
    "policy/v1/poddisruptionbudgets": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    "coordination.k8s.io/v1/leases": {"spec": {"leaseDurationSeconds": 1}},
}
"""Path of a kind -> valid object."""


def rejection_causes(
    path: str, body: dict[str, Any], after: dict[str, Any] | None = None, subresource: str = ""
) -> list[tuple[str, str]]:
    """Return (field, message) of each cause of a rejected creation, or of a rejected update to ``after``."""
    return [(cause["field"], cause["message"]) for cause in _causes(path, body, after, subresource, name="a")]


def rejection_reasons(path: str, body: dict[str, Any], after: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    """Return (field, reason) of each cause of a rejected creation, or of a rejected update to ``after``."""
    causes = _causes(path, body, after, "", name="a.b.example.com")
    return [(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes]


def causes_of_change(path: str, change: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (field, message) of each cause of a rejected creation of the valid object after a merge patch."""
    body = merge_patch.apply({"metadata": {"name": "a"}, **copy.deepcopy(VALID[path])}, change)
    return rejection_causes(path, body)


def _causes(
    path: str, body: dict[str, Any], after: dict[str, Any] | None, subresource: str, *, name: str
) -> list[dict[str, Any]]:
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    namespace = "n" if rt.namespaced else ""
    ctx = WriteContext(now=NOW, uid="u", manager="m", namespace=namespace)
    try:
        stored = pipeline.prepare_create(rt, _decode(rt, body, ctx, name), ctx).object
        if after is not None:
            stored["metadata"]["resourceVersion"] = "1"
            update = WriteContext(
                now=NOW, uid="u", manager="m", namespace=namespace, name=name, subresource=subresource
            )
            wanted = {**after, "metadata": {**after.get("metadata", {}), "resourceVersion": "1"}}
            pipeline.prepare_update(rt, stored, _decode(rt, wanted, update, name, create=False), update)
    except StatusError as error:
        causes: list[dict[str, Any]] = (error.details or {})["causes"]
        return causes
    return []


def _decode(
    rt: ResourceType, content: dict[str, Any], ctx: WriteContext, name: str, *, create: bool = True
) -> dict[str, Any]:
    body = copy.deepcopy({**content, "metadata": {"name": name, **content.get("metadata", {})}})
    return pipeline.decode_object(rt, body, ctx, create=create)[0]
