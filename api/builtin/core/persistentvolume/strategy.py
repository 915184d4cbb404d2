"""The strategy of PersistentVolume.

Source: ``registry/core/persistentvolume/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.persistentvolume import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, keep, status_update
from kubechronicle.api.values.objects import Object


def prepare_new_volume(new: Object) -> None:
    """Set the phase to Pending, with the creation time as the time of that phase."""
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": new["metadata"]["creationTimestamp"]}


def stamp_phase_change(new: Object, old: Object, now: str) -> None:
    """Set the time of the last phase change, or keep the old time."""
    status, held = new.setdefault("status", {}), old.get("status") or {}
    if status.get("phase") != held.get("phase"):
        if status.get("lastPhaseTransitionTime") in (None, held.get("lastPhaseTransitionTime")):
            status["lastPhaseTransitionTime"] = now
    elif not status.get("lastPhaseTransitionTime"):
        keep("lastPhaseTransitionTime", status, held)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "persistentvolumes": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        prepare_create=prepare_new_volume,
        subresources=MappingProxyType({"status": status_update("spec", timed=stamp_phase_change)}),
        validate=validation.persistent_volume,
        validate_update=validation.persistent_volume_update,
        warnings=warnings.volume_warnings,
    ),
}
