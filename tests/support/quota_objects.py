"""Minimal objects that quotas count."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubechronicle.api.quota.evaluators import Evaluator, Facts, evaluator_of

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def facts(**known: Any) -> Facts:
    classes: list[Object] = known.get("classes", [])
    held: list[Object] = known.get("claims", [])
    there: dict[str, Object] = known.get("pods", {})
    named = {each["metadata"]["name"]: each for each in classes}
    return Facts(
        now=NOW,
        device_class=named.get,
        device_classes=lambda text: classes,
        claims=lambda namespace, text: held,
        pod=lambda _, name: there.get(name),
    )


def evaluator(resource: str) -> Evaluator:
    found = evaluator_of(resource)
    assert found is not None
    return found


def container(name: str = "c", *, always: bool = False, limits: Object | None = None, **requests: str) -> Object:
    made: Object = {"name": name, "resources": {"requests": requests, "limits": limits or {}}}
    return {**made, "restartPolicy": "Always"} if always else made


def pod(*containers: Object, init: tuple[Object, ...] = (), status: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), "initContainers": list(init), **spec},
        "status": status or {"phase": "Pending"},
    }
