"""Defaults of DaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation that counts the changes of the template, for old clients."""

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
}


def daemon_set(obj: Object) -> None:
    """Default to a rolling update that replaces the pod of one node at a time."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    obj["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "0")


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.DaemonSet": daemon_set,
}
