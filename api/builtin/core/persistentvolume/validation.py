"""Validation of PersistentVolumes."""

from __future__ import annotations

import posixpath
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    dns_subdomain,
    immutable,
    missing,
    one_of,
    one_of_if_set,
    sorted_labels,
)
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.common.resource_amounts import basic_amount, positive
from kubechronicle.api.builtin.common.scheduling import node_selector
from kubechronicle.api.builtin.common.volume_sources import INITIATOR_TOO_LONG, initiator_too_long, one_source
from kubechronicle.api.builtin.core.persistentvolume.validation_sources import MAY_STAND_BESIDE, PERSISTENT_SOURCES
from kubechronicle.api.builtin.core.persistentvolumeclaim.validation import VOLUME_MODES, access_modes
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object

RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
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
        causes += one_of(policy, RECLAIM_POLICIES, path)
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
    causes += one_of_if_set(spec.get("volumeMode"), VOLUME_MODES, f"{field}.volumeMode")
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        path = f"{field}.volumeAttributesClassName"
        causes += dns_subdomain(attributes, path) if attributes else [required(path, "an empty string is disallowed")]
        if spec.get("csi") is None:
            causes.append(required(f"{field}.csi", "has to be specified when using volumeAttributesClassName"))
    return causes


def persistent_volume(obj: Object) -> list[Cause]:
    """Check a PersistentVolume."""
    causes = volume_spec(obj["spec"], "spec")
    iscsi = obj["spec"].get("iscsi")
    if iscsi is not None and initiator_too_long(obj["metadata"].get("name", ""), iscsi):
        causes.append(invalid_value("spec.iscsi.targetportal", iscsi.get("targetPortal", ""), INITIATOR_TOO_LONG))
    return causes


def persistent_volume_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed volume: its source is immutable, its node affinity only gets new label names."""
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
    if held.get("nodeAffinity") is not None and not _same_nodes(spec.get("nodeAffinity"), held["nodeAffinity"]):
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
