"""Table columns of the kinds of storage.k8s.io. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, counted, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject

_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS: Final = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def _marked_default(obj: ReadOnlyObject, annotations: Sequence[str]) -> str:
    given = obj["metadata"].get("annotations") or {}
    return f"{name_of(obj)} (default)" if any(given.get(key) == "true" for key in annotations) else name_of(obj)


def _storage_class(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [
        _marked_default(obj, _DEFAULT_CLASS),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, since),
    ]


def _attributes_class(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [_marked_default(obj, _DEFAULT_ATTRIBUTES_CLASS), obj.get("driverName") or "", age_of(obj, since)]


def _volume_attachment(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher") or "",
        at(spec, "source", "persistentVolumeName", default=""),
        spec.get("nodeName") or "",
        at(obj, "status", "attached", default=False),
        age_of(obj, since),
    ]


def _csi_node(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(at(obj, "spec", "drivers", default=())), age_of(obj, since)]


def _csi_driver(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(request.get("audience", "") for request in requests)
    return [
        name_of(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, since),
    ]


_DRIVER: Final = "storage.v1.CSIDriverSpec"
_CLASS: Final = "storage.v1.StorageClass"
_ATTACHMENT: Final = "storage.v1.VolumeAttachmentSpec"

PRINTERS: Final[Mapping[str, Printer]] = {
    "storageclasses.storage.k8s.io": Printer(
        (
            NAME,
            field("Provisioner", f"{_CLASS}.provisioner"),
            field("ReclaimPolicy", f"{_CLASS}.reclaimPolicy"),
            field("VolumeBindingMode", f"{_CLASS}.volumeBindingMode"),
            field("AllowVolumeExpansion", f"{_CLASS}.allowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(
        (NAME, field("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE), _attributes_class
    ),
    "volumeattachments.storage.k8s.io": Printer(
        (
            NAME,
            Column("Attacher", field=f"{_ATTACHMENT}.attacher", format="name"),
            field("PV", "storage.v1.VolumeAttachmentSource.persistentVolumeName"),
            field("Node", f"{_ATTACHMENT}.nodeName"),
            field("Attached", "storage.v1.VolumeAttachmentStatus.attached", "boolean"),
            AGE,
        ),
        _volume_attachment,
    ),
    "csinodes.storage.k8s.io": Printer(
        (
            NAME,
            counted("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
            AGE,
        ),
        _csi_node,
    ),
    "csidrivers.storage.k8s.io": Printer(
        (
            NAME,
            field("AttachRequired", f"{_DRIVER}.attachRequired", "boolean"),
            field("PodInfoOnMount", f"{_DRIVER}.podInfoOnMount", "boolean"),
            field("StorageCapacity", f"{_DRIVER}.storageCapacity", "boolean"),
            field("TokenRequests", f"{_DRIVER}.tokenRequests"),
            field("RequiresRepublish", f"{_DRIVER}.requiresRepublish", "boolean"),
            field("Modes", f"{_DRIVER}.volumeLifecycleModes"),
            AGE,
        ),
        _csi_driver,
    ),
}
