"""Warnings about Services: fields that are deprecated or ignored."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.network_values import cidr_warnings, ip_warnings
from kubechronicle.api.values.objects import Object

_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_MODE: Final = "service.kubernetes.io/topology-mode"


def service_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about deprecated or ignored fields, and about addresses not in canonical form."""
    spec = new["spec"]
    warnings: list[str] = []
    if _HINTS in (new["metadata"].get("annotations") or ()):
        warnings.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    kind, outside = spec.get("type", ""), spec.get("externalIPs") or ()
    if kind != "ExternalName" and spec.get("clusterIP", "") not in ("", "None"):
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            warnings += ip_warnings(address, f"spec.clusterIPs[{index}]")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            warnings.append("spec.loadBalancerIP is ignored for headless services")
        if outside:
            warnings.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity", "None") != "None":
            warnings.append("spec.SessionAffinity is ignored for headless services")
    for index, address in enumerate(outside):
        warnings += ip_warnings(address, f"spec.externalIPs[{index}]")
    if outside and not headless and kind != "ExternalName":
        warnings.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("loadBalancerIP"):
        warnings += ip_warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        warnings += cidr_warnings(block, f"spec.loadBalancerSourceRanges[{index}]")
    if kind == "ExternalName" and outside:
        warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        warnings.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return warnings
