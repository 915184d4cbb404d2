"""Validation of PersistentVolumeClaims, and of claim templates in pods."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    label_selector,
    missing,
    one_of_if_set,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.common.resource_amounts import amount, basic_amount, is_native, positive
from kubechronicle.api.builtin.core.persistentvolumeclaim.data_sources import copy_between_fields
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.meta.template_metadata import validate_template_metadata
from kubechronicle.api.strategy.strategy import keep
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
CLAIM_UPDATE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def access_modes(spec: Object, field: str) -> list[Cause]:
    """Reject unknown access modes, and ReadWriteOncePod together with others."""
    modes = spec.get("accessModes") or ()
    causes = [not_supported(field, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        causes.append(forbidden(field, "may not use ReadWriteOncePod with other access modes"))
    return causes


def claim_spec(spec: Object, field: str, *, old: Object | None = None) -> list[Cause]:
    """Check the spec of a claim. Any API group of a data source is accepted if one in ``old`` has a group."""
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
    causes += _data_sources(spec, field, old or {})
    if spec.get("volumeAttributesClassName"):
        causes += dns_subdomain(spec["volumeAttributesClassName"], f"{field}.volumeAttributesClassName")
    return causes


def _data_sources(spec: Object, field: str, old: Object) -> list[Cause]:
    causes: list[Cause] = []
    any_group = any((old.get(name) or {}).get("apiGroup") is not None for name in ("dataSource", "dataSourceRef"))
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
        if group and not any_group:
            causes += dns_subdomain(group, f"{path}.apiGroup")
        if given.get("namespace"):
            causes += dns_label(given["namespace"], f"{path}.namespace")
    if source is None or reference is None:
        return causes
    # Kubernetes passes the path as the value, which is printed as an empty record.
    if reference.get("namespace"):
        causes.append(invalid_value(field, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif any(source.get(name) != reference.get(name) for name in ("apiGroup", "kind", "name")):
        causes.append(invalid_value(field, {}, "must match dataSourceRef"))
    return causes


def claim_template(template: Object, field: str) -> list[Cause]:
    """Check a claim that is made for a pod: its metadata can hold only labels and annotations."""
    causes = validate_template_metadata(template.get("metadata") or {}, f"{field}.metadata")
    return causes + claim_spec(template.get("spec") or {}, f"{field}.spec")


def claim(obj: Object) -> list[Cause]:
    """Check a PersistentVolumeClaim."""
    return claim_spec(obj["spec"], "spec")


def claim_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed claim: volume and class are set once, the size of a bound claim can grow, all else is
    immutable."""
    spec, held = new["spec"], dict(old["spec"])
    copy_between_fields(held)  # an older server may have stored one field only
    causes = claim_spec(spec, "spec", old=held)
    wanted, present = dict(spec), dict(held)
    if not held.get("volumeName"):
        keep("volumeName", present, wanted)
    causes += _storage_class(new, old, wanted)
    bound = (new.get("status") or {}).get("phase") == "Bound"
    if bound:
        wanted["resources"] = _with_size(spec.get("resources") or {}, held.get("resources") or {})
        keep("volumeAttributesClassName", wanted, held)
    shown = [record(each, "PersistentVolumeClaimSpec", compared=True) for each in (present, wanted)]
    if wanted != present and shown[0] != shown[1]:
        shown = [record(each, "PersistentVolumeClaimSpec") for each in (present, wanted)]
        causes.append(forbidden("spec", f"{CLAIM_UPDATE}\n{difference(*shown)}"))
    sizes = [((each.get("resources") or {}).get("requests") or {}).get("storage", "0") for each in (spec, held)]
    if sizes[0] != sizes[1] and quantity.value_of(sizes[0]) < quantity.value_of(sizes[1]):
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
        if quantity.value_of(sizes[0]) <= quantity.value_of(capacity):
            causes.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    causes += immutable("volumeMode", spec.get("volumeMode"), held.get("volumeMode"))
    return causes + _required_attributes_class(spec, old)


def _storage_class(new: Object, old: Object, wanted: Object) -> list[Cause]:
    """Reject a changed class annotation, unless the class moves to its field.

    A class that moves to its field, or is set for the first time, is removed from ``wanted``, so that it does not count
    as a change.
    """
    before = (old["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    after = (new["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    name, unset = wanted.get("storageClassName"), old["spec"].get("storageClassName") is None
    if before is not None and unset and name == before and after in (None, before):
        wanted.pop("storageClassName", None)
        return []
    if unset and name is not None and before in (None, name):
        wanted.pop("storageClassName", None)
    return immutable(f"metadata.annotations.{BETA_STORAGE_CLASS}", after or "", before or "")


def _with_size(resources: Object, held: Object) -> Object:
    """Return the resources with the held size, because the size of a bound claim may grow."""
    if resources.get("requests") is None:
        return resources
    size = (held.get("requests") or {}).get("storage", "0")
    return {**resources, "requests": {**resources["requests"], "storage": size}}


def _required_attributes_class(spec: Object, old: Object) -> list[Cause]:
    """Reject the removal of the attributes class of a volume that has one."""
    name = spec.get("volumeAttributesClassName")
    current = (old.get("status") or {}).get("currentVolumeAttributesClassName")
    if name == old["spec"].get("volumeAttributesClassName") or current is None or name:
        return []
    shown = "nil" if name is None else "empty string"
    detail = f"update to {shown} is forbidden when status.currentVolumeAttributesClassName is not nil"
    return [forbidden("spec.volumeAttributesClassName", detail)]


_RESIZE_STATUSES: Final = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def _resource_key(name: str, field: str) -> list[Cause]:
    problems = names.qualified_name(name)
    if problems:
        return wrong(field, name, problems)
    return [not_supported(field, name, ("storage",))] if is_native(name) and name != "storage" else []


def claim_status(new: Object, old: Object) -> list[Cause]:
    """Check the capacity, and the resource names and amounts of a resize."""
    status = new.get("status") or {}
    causes: list[Cause] = []
    for name, given in (status.get("capacity") or {}).items():
        causes += basic_amount(given, f"status.capacity[{name}]")
    field = "status.allocatedResourceStatuses"
    for name, state in (status.get("allocatedResourceStatuses") or {}).items():
        causes += _resource_key(name, field)
        if state not in _RESIZE_STATUSES:
            causes.append(not_supported(field, name, _RESIZE_STATUSES))
    field = "status.allocatedResources"
    for name, given in (status.get("allocatedResources") or {}).items():
        found = _resource_key(name, field)
        causes += found or basic_amount(given, f"{field}[{name}]") or amount("storage", given, f"{field}[{name}]")
    return causes
