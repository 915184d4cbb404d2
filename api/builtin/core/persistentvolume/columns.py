"""Table columns of PersistentVolumes. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of, wide_field
from kubechronicle.api.builtin.core.persistentvolumeclaim.columns import access_modes, class_name, volume_phase
from kubechronicle.api.values.objects import ReadOnlyObject


def _persistent_volume(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        at(spec, "capacity", "storage", default="0"),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        at(obj, "status", "reason", default=""),
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "persistentvolumes": Printer(
        (
            NAME,
            field("Capacity", "core.v1.PersistentVolumeSpec.capacity"),
            field("Access Modes", "core.v1.PersistentVolumeSpec.accessModes"),
            field("Reclaim Policy", "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
            field("Status", "core.v1.PersistentVolumeStatus.phase"),
            field("Claim", "core.v1.PersistentVolumeSpec.claimRef"),
            Column("StorageClass", text="StorageClass of the pv"),
            Column("VolumeAttributesClass", text="VolumeAttributesClass of the pv"),
            field("Reason", "core.v1.PersistentVolumeStatus.reason"),
            AGE,
            wide_field("VolumeMode", "core.v1.PersistentVolumeSpec.volumeMode"),
        ),
        _persistent_volume,
    ),
}
