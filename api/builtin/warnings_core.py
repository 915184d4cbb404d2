"""Warnings of core kinds that have no pods in them: services and their endpoints, nodes, volumes, claims,
secrets and accounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.network_values import cidr_warnings, ip_warnings
from kubechronicle.api.builtin.validation_claims import BETA_STORAGE_CLASS
from kubechronicle.api.builtin.warnings_pods import node_term
from kubechronicle.api.builtin.warnings_workloads import storage_warnings
from kubechronicle.api.values.key_pairs import pair_problem
from kubechronicle.api.values.objects import Object

_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_MODE: Final = "service.kubernetes.io/topology-mode"
_OLD_CLASS: Final = (
    f'metadata.annotations[{BETA_STORAGE_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead'
)
_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CONTROLLER: Final = "endpoint-controller"
_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"
_OLD_MOUNTABLE: Final = (
    f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)
_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_OLD_OPTIONS: Final = (
    f'metadata.annotations[{_MOUNT_OPTIONS}]: deprecated since v1.31; use "mountOptions" attribute instead'
)
_RECYCLE: Final = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
    "Instead, the recommended approach is to use dynamic provisioning."
)
_GONE: Final[Mapping[str, str]] = {
    "cephfs": "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+",
    "storageos": "spec.storageOS: deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+",
    "rbd": "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
}
"""Sources of volumes that nothing mounts any more."""


def service_warnings(new: Object, old: Object | None) -> list[str]:
    """What a service asks for in vain, or in a way that is not the common one."""
    spec = new["spec"]
    told: list[str] = []
    if _HINTS in (new["metadata"].get("annotations") or ()):
        told.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    kind, outside = spec.get("type", ""), spec.get("externalIPs") or ()
    if kind != "ExternalName" and spec.get("clusterIP", "") not in ("", "None"):
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            told += ip_warnings(address, f"spec.clusterIPs[{index}]")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            told.append("spec.loadBalancerIP is ignored for headless services")
        if outside:
            told.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity", "None") != "None":
            told.append("spec.SessionAffinity is ignored for headless services")
    for index, address in enumerate(outside):
        told += ip_warnings(address, f"spec.externalIPs[{index}]")
    if spec.get("loadBalancerIP"):
        told += ip_warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        told += cidr_warnings(block, f"spec.loadBalancerSourceRanges[{index}]")
    if kind == "ExternalName":
        if outside:
            told.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    elif spec.get("externalName"):
        told.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        told.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    if outside and not headless and kind != "ExternalName":
        told.append("spec.externalIPs is deprecated")
    return told


def endpoints_warnings(new: Object, old: Object | None) -> list[str]:
    """Addresses that are to be written otherwise; the controller writes its own well."""
    if (new["metadata"].get("labels") or {}).get(_MANAGED_BY) == _ENDPOINTS_CONTROLLER:
        return []
    told: list[str] = []
    for index, subset in enumerate(new.get("subsets") or ()):
        for member in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(member) or ()):
                told += ip_warnings(address.get("ip", ""), f"subsets[{index}].{member}[{position}].ip")
    return told


def service_account_warnings(new: Object, old: Object | None) -> list[str]:
    """An annotation that is on its way out, told of when it is new."""
    before = (old["metadata"].get("annotations") or {}) if old is not None else {}
    noted = _MOUNTABLE in (new["metadata"].get("annotations") or ()) and _MOUNTABLE not in before
    return [_OLD_MOUNTABLE] if noted else []


def node_warnings(new: Object, old: Object | None) -> list[str]:
    """Fields of nodes that nothing reads any more."""
    spec = new.get("spec")
    if not spec:
        return []
    told: list[str] = []
    if spec.get("configSource") is not None:
        told.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        told.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for index, block in enumerate(spec.get("podCIDRs") or ()):
        told += cidr_warnings(block, f"spec.podCIDRs[{index}]")
    return told


def volume_warnings(new: Object, old: Object | None) -> list[str]:
    """Volumes of sources, and with ends, that Kubernetes no longer has."""
    spec, annotations = new["spec"], new["metadata"].get("annotations") or ()
    told = [_OLD_CLASS] if BETA_STORAGE_CLASS in annotations else []
    if _MOUNT_OPTIONS in annotations:
        told.append(_OLD_OPTIONS)
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        told.append(_RECYCLE)
    for index, term in enumerate(
        ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    ):
        told += node_term(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]")
    return told + [text for name, text in _GONE.items() if name in spec]


def claim_warnings(new: Object, old: Object | None) -> list[str]:
    """The old way to name a class, and amounts that are not whole."""
    told = [_OLD_CLASS] if BETA_STORAGE_CLASS in (new["metadata"].get("annotations") or ()) else []
    return told + storage_warnings(new.get("spec") or {}, "spec")


def secret_warnings(new: Object, old: Object | None) -> list[str]:
    """A certificate and a key that no server can use together."""
    if new.get("type") != "kubernetes.io/tls":
        return []
    data = new.get("data") or {}
    problem = pair_problem(data.get("tls.crt", ""), data.get("tls.key", ""))
    return [problem] if problem else []
