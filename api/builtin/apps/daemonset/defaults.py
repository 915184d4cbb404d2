"""Defaults of DaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation in which old clients find how often the template has changed."""

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
}


def daemon_set(obj: Object) -> None:
    """A rolling update replaces one node's pod at a time."""
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
