"""Defaults of PersistentVolumes and their sources. An inline volume of a VolumeAttachment gets those of its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "core.v1.ISCSIPersistentVolumeSource": {"iscsiInterface": "default"},
    "core.v1.RBDPersistentVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.ScaleIOPersistentVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
}


def persistent_volume(obj: Object) -> None:
    """Retain the volume when it is released, and mount it as a file system."""
    spec = obj["spec"]
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "core.v1.PersistentVolume": persistent_volume,
}
