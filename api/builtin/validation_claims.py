"""Validation of PersistentVolumeClaims, also of those written inline in pods."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api import quantity
from kubechronicle.api.builtin.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    label_selector,
    missing,
    one_of_if_set,
)
from kubechronicle.api.builtin.validation_resources import amount, basic_amount, positive
from kubechronicle.api.encoding import copy_object
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.metadata import validate_annotations, validate_labels

Object = dict[str, Any]

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
CLAIM_UPDATE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def access_modes(spec: Object, field: str) -> list[Cause]:
    """How a volume is mounted: by one pod only, or in one of the other ways."""
    modes = spec.get("accessModes") or ()
    causes = [not_supported(field, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        causes.append(forbidden(field, "may not use ReadWriteOncePod with other access modes"))
    return causes


def claim_spec(spec: Object, field: str) -> list[Cause]:
    """What a claim asks for."""
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required(f"{field}.accessModes", "at least 1 access mode is required"))
    causes += label_selector(spec.get("selector"), f"{field}.selector")
    causes += access_modes(spec, f"{field}.accessModes")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    path = f"{field}.resources[storage]"
    if storage is None:
        causes.append(required(path))
    else:
        causes += positive(storage, path) or amount("storage", storage, path)
    if spec.get("storageClassName"):
        causes += dns_subdomain(spec["storageClassName"], f"{field}.storageClassName")
    causes += one_of_if_set(spec.get("volumeMode"), VOLUME_MODES, f"{field}.volumeMode")
    causes += _data_sources(spec, field)
    if spec.get("volumeAttributesClassName"):
        causes += dns_subdomain(spec["volumeAttributesClassName"], f"{field}.volumeAttributesClassName")
    return causes


def _data_sources(spec: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for name, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is None:
            continue
        path = f"{field}.{name}"
        causes += missing(given, path, "name", "kind")
        group = given.get("apiGroup") or ""
        if not group and given.get("kind") != "PersistentVolumeClaim":
            detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            causes.append(invalid_value(path, given.get("kind", ""), detail))
        if group:
            causes += dns_subdomain(group, f"{path}.apiGroup")
        if given.get("namespace"):
            causes += dns_label(given["namespace"], f"{path}.namespace")
    if source is None or reference is None:
        return causes
    # The value is the path itself, printed as an empty record: so Kubernetes words it.
    if reference.get("namespace"):
        causes.append(invalid_value(field, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif any(source.get(name) != reference.get(name) for name in ("apiGroup", "kind", "name")):
        causes.append(invalid_value(field, {}, "must match dataSourceRef"))
    return causes


_TEMPLATE_METADATA: Final = ("annotations", "labels")


def claim_template(template: Object, field: str) -> list[Cause]:
    """A claim that is made for a pod: labels and annotations are all its metadata can hold."""
    metadata = template.get("metadata") or {}
    causes = validate_annotations(metadata.get("annotations") or {}, f"{field}.metadata.annotations")
    causes += validate_labels(metadata.get("labels") or {}, f"{field}.metadata.labels")
    causes += [
        forbidden(f"{field}.metadata.{name}", "cannot be set")
        for name, value in metadata.items()
        if value and name not in _TEMPLATE_METADATA
    ]
    return causes + claim_spec(template.get("spec") or {}, f"{field}.spec")


def claim(obj: Object) -> list[Cause]:
    """The rules of a claim."""
    return claim_spec(obj["spec"], "spec")


def claim_update(new: Object, old: Object) -> list[Cause]:
    """A claim's volume and class are set once, its size grows once it is bound; all else stays."""
    causes = claim(new)
    spec: Object = copy_object(new["spec"])
    held: Object = copy_object(old["spec"])
    if not held.get("volumeName"):
        held["volumeName"] = spec.get("volumeName", "")
        spec.setdefault("volumeName", "")
    before = (old["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    after = (new["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    wanted = spec.get("storageClassName")
    if held.get("storageClassName") is None and wanted is not None and before in (None, wanted):
        spec.pop("storageClassName", None)
    elif (before or "") != (after or ""):
        causes += immutable(f"metadata.annotations.{BETA_STORAGE_CLASS}", after or "", before or "")
    size = (spec.get("resources") or {}).get("requests", {}).get("storage")
    held_size = (held.get("resources") or {}).get("requests", {}).get("storage")
    if (new.get("status") or {}).get("phase") == "Bound":
        if size is not None and held_size is not None:
            spec["resources"]["requests"]["storage"] = held_size
        if spec.get("volumeAttributesClassName") is not None:
            spec.pop("volumeAttributesClassName")
            held.pop("volumeAttributesClassName", None)
    if spec != held:
        causes.append(forbidden("spec", CLAIM_UPDATE))
    if size is not None and held_size is not None and quantity.value_of(size) < quantity.value_of(held_size):
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
        if quantity.value_of(size) <= quantity.value_of(capacity):
            causes.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    causes += immutable("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))
    return causes + _attributes_class_stays(new["spec"], old["spec"])


def _attributes_class_stays(spec: Object, held: Object) -> list[Cause]:
    if held.get("volumeAttributesClassName") is None:
        return []
    field = "spec.volumeAttributesClassName"
    if spec.get("volumeAttributesClassName") is None:
        return [forbidden(field, "update from non-nil value to nil is forbidden")]
    if not spec["volumeAttributesClassName"] and held["volumeAttributesClassName"]:
        return [forbidden(field, "update from non-nil value to an empty string is forbidden")]
    return []


def claim_status(new: Object, old: Object) -> list[Cause]:
    """Capacities are amounts."""
    status = new.get("status") or {}
    causes: list[Cause] = []
    for part in ("capacity", "allocatedResources"):
        for name, given in (status.get(part) or {}).items():
            causes += basic_amount(given, f"status.{part}[{name}]")
    return causes
