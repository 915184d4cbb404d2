"""Warnings about Nodes."""

from __future__ import annotations

from kubechronicle.api.builtin.common.network_values import cidr_warnings
from kubechronicle.api.values.objects import Object


def node_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about removed fields, and about address ranges not in canonical form."""
    spec = new.get("spec")
    if not spec:
        return []
    warnings: list[str] = []
    if spec.get("configSource") is not None:
        warnings.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for index, block in enumerate(spec.get("podCIDRs") or ()):
        warnings += cidr_warnings(block, f"spec.podCIDRs[{index}]")
    return warnings
