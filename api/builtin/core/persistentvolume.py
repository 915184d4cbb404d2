"""PersistentVolume: storage of the cluster, with its source.

Source: Kubernetes' ``registry/core/persistentvolume``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    missing,
    no_backsteps,
    one_of,
    one_of_if_set,
    sorted_labels,
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
from kubechronicle.api.builtin.common.resource_amounts import basic_amount, positive
from kubechronicle.api.builtin.common.scheduling import node_selector
from kubechronicle.api.builtin.common.volume_sources import (
    INITIATOR_TOO_LONG,
    Source,
    azure_disk,
    csi_driver_name,
    fc,
    flex,
    flocker,
    host_path,
    initiator_too_long,
    iscsi,
    needs,
    nfs,
    one_source,
    partition,
    quobyte,
    storage_os,
)
from kubechronicle.api.builtin.core.persistentvolumeclaim import (
    BETA_STORAGE_CLASS,
    OLD_CLASS,
    access_modes,
    class_name,
    short_access_modes,
    volume_phase,
)
from kubechronicle.api.builtin.core.pod.warnings import node_term_warnings
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, keep, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_persistent_volume(obj: Object) -> None:
    """Retain the volume when it is released, and mount it as a file system."""
    spec = obj["spec"]
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"


# -- preparation ------------------------------------------------------------------------------------------------------


def prepare_new_volume(new: Object) -> None:
    """Set the phase to Pending, with the creation time as the time of that phase."""
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": new["metadata"]["creationTimestamp"]}


def stamp_phase_change(new: Object, old: Object, now: str) -> None:
    """Set the time of the last phase change, or keep the old time."""
    status, held = new.setdefault("status", {}), old.get("status") or {}
    if status.get("phase") != held.get("phase"):
        if status.get("lastPhaseTransitionTime") in (None, held.get("lastPhaseTransitionTime")):
            status["lastPhaseTransitionTime"] = now
    elif not status.get("lastPhaseTransitionTime"):
        keep("lastPhaseTransitionTime", status, held)


# -- validation -------------------------------------------------------------------------------------------------------

PV_SOURCE: Final = "spec.persistentvolumesource is immutable after creation"


def volume_spec(spec: Object, field: str) -> list[Cause]:
    """Check the access modes, capacity, policies, source and classes of a volume."""
    causes = missing(spec, field, "accessModes") + access_modes(spec, f"{field}.accessModes")
    capacity, path = spec.get("capacity") or {}, f"{field}.capacity"
    if not capacity:
        causes.append(required(path))
    if "storage" not in capacity or len(capacity) > 1:
        causes.append(not_supported(path, sorted_labels(spec.get("capacity")), ("storage",)))
    for name, given in capacity.items():
        causes += basic_amount(given, f"{path}[{name}]") + positive(given, f"{path}[{name}]")
    policy, path = spec.get("persistentVolumeReclaimPolicy", ""), f"{field}.persistentVolumeReclaimPolicy"
    if policy:
        causes += one_of(policy, enum("core.v1.PersistentVolumeReclaimPolicy"), path)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            causes.append(required(f"{field}.nodeAffinity.required", "must specify required node constraints"))
        else:
            causes += node_selector(affinity["required"], f"{field}.nodeAffinity.required")
    causes += one_source(spec, PERSISTENT_SOURCES, field, MAY_STAND_BESIDE)
    # A volume of several sources has the type of the first one.
    first = next((name for name in PERSISTENT_SOURCES if spec.get(name) is not None), "")
    if first == "local" and affinity is None:
        causes.append(required(f"{field}.nodeAffinity", "Local volume requires node affinity"))
    host = (spec.get("hostPath") or {}).get("path", "")
    if host and policy == "Recycle" and posixpath.normpath(host) == "/":
        causes.append(forbidden(path, "may not be 'recycle' for a hostPath mount of '/'"))
    if spec.get("storageClassName"):
        causes += dns_subdomain(spec["storageClassName"], f"{field}.storageClassName")
    causes += one_of_if_set(spec.get("volumeMode"), enum("core.v1.PersistentVolumeMode"), f"{field}.volumeMode")
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        path = f"{field}.volumeAttributesClassName"
        causes += dns_subdomain(attributes, path) if attributes else [required(path, "an empty string is disallowed")]
        if spec.get("csi") is None:
            causes.append(required(f"{field}.csi", "has to be specified when using volumeAttributesClassName"))
    return causes


def validate_persistent_volume(obj: Object) -> list[Cause]:
    """Check a PersistentVolume."""
    causes = volume_spec(obj["spec"], "spec")
    iscsi = obj["spec"].get("iscsi")
    if iscsi is not None and initiator_too_long(obj["metadata"].get("name", ""), iscsi):
        causes.append(invalid_value("spec.iscsi.targetportal", iscsi.get("targetPortal", ""), INITIATOR_TOO_LONG))
    return causes


def validate_persistent_volume_update(new: Object, old: Object, *, nodes_may_change: bool = False) -> list[Cause]:
    """Check a changed volume: its source is immutable, its node affinity only gets new label names.

    ``nodes_may_change``: the node affinity is mutable (KEP-5381).
    """
    causes: list[Cause] = []
    spec, held = new["spec"], old["spec"]
    sources = [{name: each[name] for name in PERSISTENT_SOURCES if name in each} for each in (spec, held)]
    if all("csi" in each for each in sources) and "controllerExpandSecretRef" not in sources[1]["csi"]:
        sources[0]["csi"] = {**sources[0]["csi"]}
        sources[0]["csi"].pop("controllerExpandSecretRef", None)
    if sources[0] != sources[1]:
        shown = [record(each, "PersistentVolumeSource") for each in (sources[1], sources[0])]
        causes.append(forbidden("spec.persistentvolumesource", f"{PV_SOURCE}\n{difference(*shown)}"))
    causes += immutable("volumeMode", spec.get("volumeMode"), held.get("volumeMode"))
    affinity = None if nodes_may_change else held.get("nodeAffinity")
    if affinity is not None and not _same_nodes(spec.get("nodeAffinity"), affinity):
        detail = "field is immutable, except for updating from beta label to GA"
        nodes = record(spec.get("nodeAffinity"), "VolumeNodeAffinity")
        causes.append(invalid_value("nodeAffinity", nodes, detail))
    if held.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        causes.append(forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"))
    return causes


_STABLE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""Deprecated node label -> its new name."""


def _same_nodes(new: Object | None, old: Object) -> bool:
    """Return whether two node affinities are equal, apart from node labels that were renamed in the new one."""
    if new is None:
        return False
    terms = [(each.get("required") or {}).get("nodeSelectorTerms") or [] for each in (new, old)]
    shown = [[record(term, "NodeSelectorTerm", compared=True) or {} for term in part] for part in terms]
    for term, held in zip(*shown, strict=False):
        for requirement, before in zip(term["MatchExpressions"] or (), held["MatchExpressions"] or (), strict=False):
            # As in Kubernetes, a label without a new name may also lose its name.
            if _STABLE_LABELS.get(before["Key"], "") == requirement["Key"]:
                before["Key"] = requirement["Key"]
    return shown[0] == shown[1]


# -- sources ----------------------------------------------------------------------------------------------------------


def _local(source: Object, field: str) -> list[Cause]:
    path = source.get("path", "")
    return no_backsteps(path, f"{field}.path") if path else [required(f"{field}.path")]


def _iscsi_persistent(source: Object, field: str) -> list[Cause]:
    return iscsi(source, field, "")


def _storage_os_persistent(source: Object, field: str) -> list[Cause]:
    return [*storage_os({**source, "secretRef": None}, field), *_namespaced_secret(source, field)]


def _namespaced_secret(source: Object, field: str) -> list[Cause]:
    secret = source.get("secretRef")
    return [] if secret is None else missing(secret, f"{field}.secretRef", "name", "namespace")


_CSI_SECRETS: Final = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def _csi_persistent(source: Object, field: str) -> list[Cause]:
    causes = csi_driver_name(source.get("driver", ""), f"{field}.driver") + missing(source, field, "volumeHandle")
    for member in _CSI_SECRETS:
        secret = source.get(member)
        if secret is None:
            continue
        causes += missing(secret, f"{field}.{member}", "name", "namespace")
        if secret.get("name"):
            causes += dns_subdomain(secret["name"], f"{field}.{member}.name")
        if secret.get("namespace"):
            causes += dns_label(secret["namespace"], f"{field}.{member}.namespace")
    return causes


def _glusterfs_persistent(source: Object, field: str) -> list[Cause]:
    namespace, path = source.get("endpointsNamespace"), f"{field}.endpointsNamespace"
    if namespace is None:
        return []
    if not namespace:
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        return [invalid_value(path, namespace, detail)]
    return dns_label(namespace, path)


def _azure_file_persistent(source: Object, field: str) -> list[Cause]:
    return [required(f"{field}.secretNamespace")] if source.get("secretNamespace") == "" else []


PERSISTENT_SOURCES: Final[Mapping[str, Source]] = {
    "hostPath": host_path,
    "gcePersistentDisk": needs("pdName", then=partition),
    "awsElasticBlockStore": needs("volumeID", then=partition),
    "glusterfs": needs("endpoints", "path", then=_glusterfs_persistent),
    "flocker": flocker,
    "nfs": needs("server", "path", then=nfs),
    "rbd": needs("monitors", "image"),
    "quobyte": quobyte,
    "cephfs": needs("monitors"),
    "iscsi": _iscsi_persistent,
    "cinder": needs("volumeID", then=_namespaced_secret),
    "fc": fc,
    "flexVolume": flex,
    "azureFile": needs("secretName", "shareName", then=_azure_file_persistent),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": needs("diskName", "diskURI", then=azure_disk),
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os_persistent,
    "csi": _csi_persistent,
}

MAY_STAND_BESIDE: Final = ("flexVolume",)
"""Sources that Kubernetes allows beside another one."""


# -- warnings ---------------------------------------------------------------------------------------------------------

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


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        at(spec, "capacity", "storage", default="0"),
        short_access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        class_name(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        at(obj, "status", "reason", default=""),
        age_of(obj, since),
        spec.get("volumeMode") or "<unset>",
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="persistentvolumes",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        prepare_create=prepare_new_volume,
        subresources=MappingProxyType({"status": status_update("spec", timed=stamp_phase_change)}),
        validate=validate_persistent_volume,
        validate_update=validate_persistent_volume_update,
        with_gates={
            "MutablePVNodeAffinity": {
                "validate_update": partial(validate_persistent_volume_update, nodes_may_change=True)
            }
        },
        warnings=volume_warnings,
    ),
    gated_fields={
        "": (GatedField(gate="VolumeAttributesClass", fields=("spec.volumeAttributesClassName",)),),
    },
    default_values={
        "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    },
    default_functions={"core.v1.PersistentVolume": default_persistent_volume},
    resource_lists={"core.v1.PersistentVolumeSpec": ("capacity",)},
    printer=Printer(
        (
            NAME,
            field_column("Capacity", "core.v1.PersistentVolumeSpec.capacity"),
            field_column("Access Modes", "core.v1.PersistentVolumeSpec.accessModes"),
            field_column("Reclaim Policy", "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
            field_column("Status", "core.v1.PersistentVolumeStatus.phase"),
            field_column("Claim", "core.v1.PersistentVolumeSpec.claimRef"),
            Column("StorageClass", text="StorageClass of the pv"),
            Column("VolumeAttributesClass", text="VolumeAttributesClass of the pv"),
            field_column("Reason", "core.v1.PersistentVolumeStatus.reason"),
            AGE,
            wide_field("VolumeMode", "core.v1.PersistentVolumeSpec.volumeMode"),
        ),
        _cells,
    ),
)
