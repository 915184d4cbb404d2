"""VolumeAttachment: a volume that is, or should be, attached to a node.

Source: Kubernetes' ``registry/storage/volumeattachment``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import MAX_INT32, dns_subdomain, missing
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.common.volume_sources import one_source
from kubechronicle.api.builtin.core.persistentvolume import MAY_STAND_BESIDE, PERSISTENT_SOURCES
from kubechronicle.api.builtin.core.persistentvolumeclaim import access_modes
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required, too_long
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_METADATA: Final = 256 * 1024
MAX_ERROR: Final = 1024
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def validate_attachment(obj: Object) -> list[Cause]:
    """Check the node and single volume of a VolumeAttachment."""
    spec = obj["spec"]
    source, path, causes = spec.get("source") or {}, "spec.source", list[Cause]()
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        causes.append(required(path, _ONE_SOURCE))
    elif inline is not None and name is not None:
        causes.append(forbidden(path, _ONE_SOURCE))
    elif name == "":
        detail = "must specify non empty persistentVolumeName"
        causes.append(required(f"{path}.persistentVolumeName", detail))
    elif inline is not None:
        causes += inline_volume_spec(inline, f"{path}.inlineVolumeSpec")
    causes += dns_subdomain(spec.get("nodeName", ""), "spec.nodeName") + _attachment_status(obj)
    return causes if name is None else causes + dns_subdomain(name, f"{path}.persistentVolumeName")


def inline_volume_spec(spec: Object, field: str) -> list[Cause]:
    """Check the spec of an inline volume: a CSI source and access modes, without fields that need a
    PersistentVolume."""
    inline, detail = "in the context of inline volumes", "may not be specified in the context of inline volumes"
    causes = [forbidden(f"{field}.claimRef", detail)] if spec.get("claimRef") is not None else []
    if spec.get("capacity"):
        causes.append(forbidden(f"{field}.capacity", detail))
    if spec.get("csi") is None:
        causes.append(required(f"{field}.csi", f"has to be specified {inline}"))
    causes += missing(spec, field, "accessModes") + access_modes(spec, f"{field}.accessModes")
    if spec.get("persistentVolumeReclaimPolicy", "") not in ("", "Retain"):
        causes.append(forbidden(f"{field}.persistentVolumeReclaimPolicy", f"may only be Retain {inline}"))
    if spec.get("nodeAffinity") is not None:
        causes.append(forbidden(f"{field}.nodeAffinity", detail))
    causes += one_source(spec, PERSISTENT_SOURCES, field, MAY_STAND_BESIDE)
    if spec.get("storageClassName"):
        causes.append(forbidden(f"{field}.storageClassName", detail))
    if spec.get("volumeMode") not in (None, "Filesystem"):
        causes.append(forbidden(f"{field}.volumeMode", f"may not specify volumeMode other than Filesystem {inline}"))
    return causes


def _attachment_status(obj: Object) -> list[Cause]:
    status, causes = obj.get("status") or {}, list[Cause]()
    noted = status.get("attachmentMetadata") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in noted.items()) > MAX_METADATA:
        causes.append(too_long("status.attachmentMetadata", MAX_METADATA))
    for name in ("attachError", "detachError"):
        error, path = status.get(name) or {}, f"status.{name}"
        if len(error.get("message", "").encode()) > MAX_ERROR:
            causes.append(too_long(f"{path}.message", MAX_METADATA))
        if error.get("errorCode") is not None and error["errorCode"] < 0:
            detail = f"must be between 0 and {MAX_INT32}, inclusive"
            causes.append(invalid_value(f"{path}.errorCode", error["errorCode"], detail))
    return causes


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher") or "",
        at(spec, "source", "persistentVolumeName", default=""),
        spec.get("nodeName") or "",
        at(obj, "status", "attached", default=False),
        age_of(obj, since),
    ]


_ATTACHMENT: Final = "storage.v1.VolumeAttachmentSpec"


KIND: Final = BuiltinKind(
    resource="volumeattachments.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        unconditional_update=False,
        validate=validate_attachment,
        subresources=only_status(checks=(Check.METADATA, Check.OBJECT)),
    ),
    gated_fields={
        "status": (
            GatedField(gate="MutableCSINodeAllocatableCount", fields=("status.attachError.errorCode",)),
            GatedField(gate="MutableCSINodeAllocatableCount", fields=("status.detachError.errorCode",)),
        ),
    },
    printer=Printer(
        (
            NAME,
            Column("Attacher", field=f"{_ATTACHMENT}.attacher", format="name"),
            field_column("PV", "storage.v1.VolumeAttachmentSource.persistentVolumeName"),
            field_column("Node", f"{_ATTACHMENT}.nodeName"),
            field_column("Attached", "storage.v1.VolumeAttachmentStatus.attached", "boolean"),
            AGE,
        ),
        _cells,
    ),
)
