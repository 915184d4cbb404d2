"""Warnings about PersistentVolumes: deprecated annotations, policies, node labels and sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.core.persistentvolumeclaim.validation import BETA_STORAGE_CLASS
from kubechronicle.api.builtin.core.persistentvolumeclaim.warnings import OLD_CLASS
from kubechronicle.api.builtin.core.pod.warnings import node_term_warnings
from kubechronicle.api.values.objects import Object

_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_OLD_OPTIONS: Final = (
    f'metadata.annotations[{_MOUNT_OPTIONS}]: deprecated since v1.31; use "mountOptions" attribute instead'
)
_RECYCLE: Final = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
    "Instead, the recommended approach is to use dynamic provisioning."
)
_REMOVED_SOURCES: Final[Mapping[str, str]] = {
    "cephfs": "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+",
    "storageos": "spec.storageOS: deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+",
    "rbd": "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
}
"""Volume sources that are deprecated or no longer work."""


def volume_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about deprecated annotations, policies, node labels and sources."""
    spec, annotations = new["spec"], new["metadata"].get("annotations") or ()
    warnings = [OLD_CLASS] if BETA_STORAGE_CLASS in annotations else []
    if _MOUNT_OPTIONS in annotations:
        warnings.append(_OLD_OPTIONS)
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        warnings.append(_RECYCLE)
    for index, term in enumerate(
        ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    ):
        warnings += node_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]")
    return warnings + [text for name, text in _REMOVED_SOURCES.items() if name in spec]
