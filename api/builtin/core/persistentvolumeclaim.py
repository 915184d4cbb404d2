"""PersistentVolumeClaim: a demand for storage.

Source: Kubernetes' ``registry/core/persistentvolumeclaim``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    dns_label,
    dns_subdomain,
    health_conditions,
    immutable,
    label_selector,
    missing,
    one_of_if_set,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import (
    AGE,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.common.resource_amounts import (
    amount,
    basic_amount,
    fractional_warnings,
    is_native,
    positive,
)
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.meta.template_metadata import validate_template_metadata
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, keep, status_update
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- data sources -----------------------------------------------------------------------------------------------------

_IN_OLD_FIELD: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_SHARED: Final = ("apiGroup", "kind", "name")


def drop_unusable(spec: Object, held: Object) -> None:
    """Drop a source that the older field alone can't have. A claim whose old spec (``held``) has one keeps its own."""
    source = spec.get("dataSource")
    if source is None or spec.get("dataSourceRef") is not None or held.get("dataSource") is not None:
        return
    if (source.get("apiGroup") or "", source.get("kind")) not in _IN_OLD_FIELD:
        del spec["dataSource"]


def copy_between_fields(spec: Object) -> None:
    """Copy the source from the field that has it to the one that lacks it."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = _shared(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = _shared(reference)


def _shared(reference: Object) -> Object:
    return {name: reference[name] for name in _SHARED if name in reference}


# -- preparation ------------------------------------------------------------------------------------------------------


def prepare_new_claim(new: Object) -> None:
    """Reset the status, and write the data source into both of its fields. The phase is Pending by default. Kubernetes
    stores it with the first update only: until then, each read sets it."""
    new["status"] = {}
    drop_unusable(new["spec"], {})
    copy_between_fields(new["spec"])


def prepare_claim_update(new: Object, old: Object) -> None:
    """Write the data source into both of its fields: older clients know one only."""
    drop_unusable(new["spec"], old["spec"])
    copy_between_fields(new["spec"])


# -- validation -------------------------------------------------------------------------------------------------------

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
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
    causes += one_of_if_set(spec.get("volumeMode"), enum("core.v1.PersistentVolumeMode"), f"{field}.volumeMode")
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


def validate_claim(obj: Object) -> list[Cause]:
    """Check a PersistentVolumeClaim."""
    return claim_spec(obj["spec"], "spec")


def validate_claim_update(new: Object, old: Object) -> list[Cause]:
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


def validate_claim_status(new: Object, old: Object) -> list[Cause]:
    """Check the capacity, and the resource names and amounts of a resize."""
    status = new.get("status") or {}
    causes: list[Cause] = []
    for name, given in (status.get("capacity") or {}).items():
        causes += basic_amount(given, f"status.capacity[{name}]")
    causes += health_conditions(status.get("healthStatus") or {}, "status.healthStatus")
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


# -- warnings ---------------------------------------------------------------------------------------------------------


def storage_warnings(spec: Object, field: str) -> list[str]:
    """Return warnings about amounts of storage that are not whole."""
    resources = spec.get("resources") or {}
    warnings = fractional_warnings(resources.get("requests"), f"{field}.resources.requests", "storage")
    return warnings + fractional_warnings(resources.get("limits"), f"{field}.resources.limits", "storage")


OLD_CLASS: Final = (
    f'metadata.annotations[{BETA_STORAGE_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead'
)


def claim_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the class annotation and about fractional amounts."""
    warnings = [OLD_CLASS] if BETA_STORAGE_CLASS in (new["metadata"].get("annotations") or ()) else []
    return warnings + storage_warnings(new.get("spec") or {}, "spec")


# -- table columns ----------------------------------------------------------------------------------------------------

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def short_access_modes(modes: Iterable[str] | None) -> str:
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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    volume = spec.get("volumeName") or ""
    return [
        name_of(obj),
        volume_phase(obj),
        volume,
        at(obj, "status", "capacity", "storage", default="0") if volume else "",
        short_access_modes(at(obj, "status", "accessModes")) if volume else "",
        class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------


def _drop_foreign_source(claim: Object) -> None:
    """Remove the data source of a claim if it is in another namespace."""
    if claim["dataSourceRef"].get("namespace"):
        del claim["dataSourceRef"]


KIND: Final = BuiltinKind(
    resource="persistentvolumeclaims",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        returns_deleted=True,
        defaults_again=True,
        changes_when_read=lambda new: True,
        prepare_create=prepare_new_claim,
        prepare_update=prepare_claim_update,
        validate=validate_claim,
        validate_update=validate_claim_update,
        warnings=claim_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validate_claim_status)}),
    ),
    gated_fields={
        "": (
            GatedField(gate="VolumeAttributesClass", fields=("spec.volumeAttributesClassName",)),
            GatedField(
                gate="CrossNamespaceVolumeDataSource", base="spec", fields=("dataSourceRef",), drop=_drop_foreign_source
            ),
        ),
        "status": (
            GatedField(gate="VolumeAttributesClass", fields=("status.currentVolumeAttributesClassName",)),
            GatedField(gate="VolumeAttributesClass", fields=("status.modifyVolumeStatus",)),
            GatedField(gate="RecoverVolumeExpansionFailure", fields=("status.allocatedResources",)),
            GatedField(gate="RecoverVolumeExpansionFailure", fields=("status.allocatedResourceStatuses",)),
            GatedField(gate="CSIVolumeHealth", since=37, fields=("status.healthStatus",)),
        ),
    },
    default_values={
        "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
        "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    },
    resource_lists={
        "core.v1.PersistentVolumeClaimStatus": ("allocatedResources", "capacity"),
        "core.v1.VolumeResourceRequirements": ("limits", "requests"),
    },
    printer=Printer(
        (
            NAME,
            field_column("Status", "core.v1.PersistentVolumeClaimStatus.phase"),
            field_column("Volume", "core.v1.PersistentVolumeClaimSpec.volumeName"),
            field_column("Capacity", "core.v1.PersistentVolumeClaimStatus.capacity"),
            field_column("Access Modes", "core.v1.PersistentVolumeClaimStatus.accessModes"),
            Column("StorageClass", text="StorageClass of the pvc"),
            Column("VolumeAttributesClass", text="VolumeAttributesClass of the pvc"),
            AGE,
            wide_field("VolumeMode", "core.v1.PersistentVolumeClaimSpec.volumeMode"),
        ),
        _cells,
    ),
)
