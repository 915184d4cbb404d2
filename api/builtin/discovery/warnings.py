"""Warnings about EndpointSlices."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.network_values import ip_warnings
from kubechronicle.api.values.objects import Object

_CONTROLLERS: Final = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def endpoint_slice_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about FQDN slices, and about addresses not in canonical form except in controllers' slices."""
    warnings: list[str] = []
    if old is None and new.get("addressType") == "FQDN":
        warnings.append("spec.addressType: FQDN endpoints are deprecated")
    if (new["metadata"].get("labels") or {}).get("endpointslice.kubernetes.io/managed-by") in _CONTROLLERS:
        return warnings
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        for position, address in enumerate(endpoint.get("addresses") or ()):
            warnings += ip_warnings(address, f"endpoints[{index}].addresses[{position}]")
    return warnings
