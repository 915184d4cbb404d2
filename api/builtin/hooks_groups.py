"""Hooks of the strategies of the kinds outside core, apps and batch, in the manner of hooks.py: fields of features that
are off are dropped unless the stored object has them, and the server fills in what is its own to say."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.values.objects import Object

_LEADER_ELECTION: Final = ("strategy", "preferredHolder")
"""Fields of CoordinatedLeaderElection, which is off."""


def new_lease(new: Object) -> None:
    """A lease has nothing of a feature that is off."""
    lease_features(new, {})


def lease_features(new: Object, old: Object) -> None:
    """Drop what is of a feature that is off, unless the lease has it already."""
    spec, held = new.get("spec") or {}, old.get("spec") or {}
    for name in _LEADER_ELECTION:
        if name not in held:
            spec.pop(name, None)


def new_csi_driver(new: Object) -> None:
    """A driver has nothing of a feature that is off."""
    new["spec"].pop("preventPodSchedulingIfMissing", None)


def csi_driver_changes(new: Object, old: Object) -> None:
    """Changes of a driver are counted, from none; a field of a feature that is off stays where it was alone."""
    if "preventPodSchedulingIfMissing" not in old["spec"]:
        new_csi_driver(new)
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def new_api_service(new: Object) -> None:
    """An API without a service is this server's own, and always there."""
    new["status"] = {}
    if (new.get("spec") or {}).get("service") is None:
        new["status"]["conditions"] = [
            {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": new["metadata"]["creationTimestamp"],
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
        ]
