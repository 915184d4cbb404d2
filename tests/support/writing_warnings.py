"""Bodies for tests of warnings, and the warnings that the pipeline returns for them."""

from __future__ import annotations

import copy
from typing import Any

from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import builtin_registry

NOW = "2026-01-01T00:00:00Z"
CONTAINER: dict[str, Any] = {"name": "c", "image": "i"}
POD: dict[str, Any] = {"containers": [CONTAINER]}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
JOB: dict[str, Any] = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
VOLUME: dict[str, Any] = {
    "accessModes": ["ReadWriteOnce"],
    "capacity": {"storage": "1Gi"},
    "hostPath": {"path": "/x"},
}
CLAIM: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
OLD_LABEL = 'deprecated since v1.14; use "kubernetes.io/os" instead'
OLD_CLASS = 'deprecated since v1.8; use "storageClassName" attribute instead'
NULL_SELECTOR = "a null labelSelector results in matching no pod"
LABEL_WANTED = "which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"


def warnings(
    path: str, body: dict[str, Any], after: dict[str, Any] | None = None, subresource: str = ""
) -> tuple[str, ...]:
    """Return the warnings of a creation, or of an update of the created object to ``after``."""
    group, version, plural = path.split("/")
    rt = builtin_registry().lookup(group, version, plural)
    assert rt is not None
    ctx = WriteContext(now=NOW, uid="u", manager="m", namespace="n" if rt.namespaced else "")

    def decoded(content: dict[str, Any], there: WriteContext, *, create: bool) -> dict[str, Any]:
        content = copy.deepcopy({**content, "metadata": {"name": "a", **content.get("metadata", {})}})
        return pipeline.decode_object(rt, content, there, create=create)[0]

    created = pipeline.prepare_create(rt, decoded(body, ctx, create=True), ctx)
    if after is None:
        return tuple(created.warnings)
    stored = created.object
    stored["metadata"]["resourceVersion"] = "1"
    there = WriteContext(now=NOW, uid="u", manager="m", namespace=ctx.namespace, name="a", subresource=subresource)
    wanted = decoded({**after, "metadata": {**after.get("metadata", {}), "resourceVersion": "1"}}, there, create=False)
    return tuple(pipeline.prepare_update(rt, stored, wanted, there).warnings)


def container(**members: Any) -> dict[str, Any]:
    """Return the spec of a pod with one container of these members."""
    return {"containers": [{**CONTAINER, **members}]}


def volume(**source: Any) -> dict[str, Any]:
    """Return the spec of a pod with one volume of this source."""
    return {**POD, "volumes": [{"name": "v", **source}]}


def files(*paths: str) -> list[dict[str, str]]:
    """Return items that map one key to each of these paths."""
    return [{"key": "k", "path": path} for path in paths]
