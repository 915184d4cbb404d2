"""How nodes and persistent volumes are shown. Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import Since, condition
from kubechronicle.api.builtin.printer import AGE, NAME, Column, Object, Printer, age_of, at, field, name_of, wide_field

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"
_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def _node_status(obj: Object) -> str:
    ready = condition(at(obj, "status", "conditions"), "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if at(obj, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or "<none>"


def _node_address(obj: Object, kind: str) -> str:
    addresses = at(obj, "status", "addresses", default=())
    return next((address.get("address", "") for address in addresses if address.get("type") == kind), "<none>")


def _kernel(info: Object) -> str:
    version: str = info.get("kernelVersion") or "<unknown>"
    architecture = info.get("architecture")
    return f"{version} ({architecture})" if architecture else version


def _node(obj: Object, since: Since) -> list[Any]:
    info = at(obj, "status", "nodeInfo", default={})
    return [
        name_of(obj),
        _node_status(obj),
        _node_roles(obj["metadata"].get("labels") or {}),
        age_of(obj, since),
        info.get("kubeletVersion") or "",
        _node_address(obj, "InternalIP"),
        _node_address(obj, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        _kernel(info),
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _access_modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _class_name(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    name: str = annotations.get(_CLASS_ANNOTATION) or at(obj, "spec", "storageClassName", default="")
    return name


def _volume_phase(obj: Object) -> str:
    phase: str = at(obj, "status", "phase", default="")
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else phase


def _persistent_volume(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        at(spec, "capacity", "storage", default="0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        at(obj, "status", "reason", default=""),
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


def _persistent_volume_claim(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    volume = spec.get("volumeName") or ""
    return [
        name_of(obj),
        _volume_phase(obj),
        volume,
        at(obj, "status", "capacity", "storage", default="0") if volume else "",
        _access_modes(at(obj, "status", "accessModes")) if volume else "",
        _class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "nodes": Printer(
        (
            NAME,
            Column("Status", text="The status of the node"),
            Column("Roles", text="The roles of the node"),
            AGE,
            field("Version", "core.v1.NodeSystemInfo.kubeletVersion"),
            wide_field("Internal-IP", "core.v1.NodeStatus.addresses"),
            wide_field("External-IP", "core.v1.NodeStatus.addresses"),
            wide_field("OS-Image", "core.v1.NodeSystemInfo.osImage"),
            wide_field("Kernel-Version", "core.v1.NodeSystemInfo.kernelVersion"),
            wide_field("Container-Runtime", "core.v1.NodeSystemInfo.containerRuntimeVersion"),
        ),
        _node,
    ),
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
"""Storage resource -> printer."""
