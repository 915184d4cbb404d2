"""Table columns of PersistentVolumeClaims, and the cells that they share with volumes.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of, wide_field
from kubechronicle.api.values.objects import ReadOnlyObject

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def access_modes(modes: Iterable[str] | None) -> str:
    """Return access modes by their short names, each once."""
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def class_name(obj: ReadOnlyObject) -> str:
    """Return the storage class of a volume or claim, from its annotation or its spec."""
    annotations = obj["metadata"].get("annotations") or {}
    name: str = annotations.get(_CLASS_ANNOTATION) or at(obj, "spec", "storageClassName", default="")
    return name


def volume_phase(obj: ReadOnlyObject) -> str:
    """Return the phase of a volume or claim, or "Terminating" while it is being deleted."""
    phase: str = at(obj, "status", "phase", default="")
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else phase


def _persistent_volume_claim(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    volume = spec.get("volumeName") or ""
    return [
        name_of(obj),
        volume_phase(obj),
        volume,
        at(obj, "status", "capacity", "storage", default="0") if volume else "",
        access_modes(at(obj, "status", "accessModes")) if volume else "",
        class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "persistentvolumeclaims": Printer(
        (
            NAME,
            field("Status", "core.v1.PersistentVolumeClaimStatus.phase"),
            field("Volume", "core.v1.PersistentVolumeClaimSpec.volumeName"),
            field("Capacity", "core.v1.PersistentVolumeClaimStatus.capacity"),
            field("Access Modes", "core.v1.PersistentVolumeClaimStatus.accessModes"),
            Column("StorageClass", text="StorageClass of the pvc"),
            Column("VolumeAttributesClass", text="VolumeAttributesClass of the pvc"),
            AGE,
            wide_field("VolumeMode", "core.v1.PersistentVolumeClaimSpec.volumeMode"),
        ),
        _persistent_volume_claim,
    ),
}
