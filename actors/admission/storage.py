"""Admission of volumes and claims: DefaultStorageClass, StorageObjectInUseProtection, PersistentVolumeClaimResize
(plugin/pkg/admission/storage of kube-apiserver); and PodGroupProtection, which protects as well (…/scheduling)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionPlugin, AdmissionState, Attributes, forbidden
from kubechronicle.api.values.quantity import value_of
from kubechronicle.eventlog.entries import Entry

# -- defaults ----------------------------------------------------------------------------------------------------------
#
# Default classes: those with an annotation that marks them.


def newest_default(entries: Sequence[Entry], annotations: Sequence[str]) -> str:
    """Return the name of the newest entry with one of the annotations "true", or "". Ties are broken by name.

    Creation times are RFC 3339 in UTC and compare as text.
    """
    marked: list[tuple[str, str]] = []
    texts = [name.encode() for name in annotations]
    for entry in entries:
        if not any(text in entry.json for text in texts):
            continue  # saves parsing the object
        meta = entry.object()["metadata"]
        present = meta.get("annotations") or {}
        if any(present.get(name) == "true" for name in annotations):
            marked.append((meta.get("creationTimestamp", ""), meta["name"]))
    if not marked:
        return ""
    newest = max(created for created, _ in marked)
    return min(name for created, name in marked if created == newest)


CLAIMS: Final = "persistentvolumeclaims"
STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
DEFAULT_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
PROTECTED: Final = {
    CLAIMS: "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
    "volumeattributesclasses.storage.k8s.io": "kubernetes.io/vac-protection",
}


class DefaultStorageClass(AdmissionPlugin):
    """Sets the default class of a claim that names none; "" counts as a name."""

    name = "DefaultStorageClass"
    resources = frozenset({CLAIMS})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        claim = attributes.object
        if claim is None or attributes.subresource:
            return
        spec = claim.setdefault("spec", {})
        if "storageClassName" in spec or CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {}):
            return
        name = newest_default(state.entries(STORAGE_CLASSES, ""), DEFAULT_ANNOTATIONS)
        if name:
            spec["storageClassName"] = name


class StorageObjectInUseProtection(AdmissionPlugin):
    """Adds a finalizer, which a controller removes once the object is no longer in use."""

    name = "StorageObjectInUseProtection"
    resources = frozenset(PROTECTED)
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        _protect(attributes, PROTECTED[attributes.rt.resource])


class PodGroupProtection(AdmissionPlugin):
    """The same for PodGroups, which pods use."""

    name = "PodGroupProtection"
    gate = "GenericWorkload"
    resources = frozenset({"podgroups.scheduling.k8s.io"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        _protect(attributes, "scheduling.k8s.io/podgroup-protection")


def _protect(attributes: Attributes, finalizer: str) -> None:
    if attributes.object is None or attributes.subresource:
        return
    meta = attributes.object["metadata"]
    finalizers = meta.get("finalizers") or []
    if finalizer not in finalizers:
        meta["finalizers"] = [*finalizers, finalizer]


class PersistentVolumeClaimResize(AdmissionPlugin):
    """Allows a claim to grow only if it is bound and its class allows expansion."""

    name = "PersistentVolumeClaimResize"
    resources = frozenset({CLAIMS})
    operations = frozenset({UPDATE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        claim = attributes.object
        if claim is None or attributes.old is None or attributes.subresource:
            return
        old = attributes.before
        if _size(claim) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise forbidden(attributes, "Only bound persistent volume claims can be expanded")
        name = _class_of(claim)
        entry = state.peek(STORAGE_CLASSES, "", name) if name and name == _class_of(old) else None
        if entry is None or not entry.object().get("allowVolumeExpansion"):
            why = (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )
            raise forbidden(attributes, why)


def _size(claim: dict[str, Any]) -> Any:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return value_of(requests.get("storage", "0"))


def _class_of(claim: dict[str, Any]) -> str:
    annotation = (claim["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    name: str = annotation if annotation is not None else (claim.get("spec") or {}).get("storageClassName") or ""
    return name
