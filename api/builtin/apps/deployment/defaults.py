"""Defaults of Deployments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
}


def deployment(obj: Object) -> None:
    """Default to a rolling update that replaces a quarter of the pods at a time."""
    strategy = obj["spec"].setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.Deployment": deployment,
}
