"""Defaults of StatefulSets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}


def stateful_set(obj: Object) -> None:
    """Default to a rolling update from partition 0, so that it covers all pods."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if not strategy.get("rollingUpdate"):
            strategy["rollingUpdate"] = {"partition": 0}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)


def stateful_set_claims(obj: Object) -> None:
    """Set apiVersion and kind in the claim templates, as Kubernetes' decoder does, even if they are given."""
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        claim["apiVersion"] = "v1"
        claim["kind"] = "PersistentVolumeClaim"


def _stateful_set(obj: Object) -> None:
    stateful_set(obj)
    stateful_set_claims(obj)


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.StatefulSet": _stateful_set,
}
