"""The strategy of Node.

Source: ``registry/core/node/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.node import validation, warnings
from kubechronicle.api.strategy.strategy import Strategy, status_update
from kubechronicle.api.values.objects import Object


def align_pod_cidrs(new: Object, old: Object | None = None) -> None:
    """Make podCIDR the only item of podCIDRs if they disagree: the client knows only the older field."""
    spec = new.get("spec") or {}
    if spec.get("podCIDR") and (spec.get("podCIDRs") or [""])[0] != spec["podCIDR"]:
        spec["podCIDRs"] = [spec["podCIDR"]]


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "nodes": Strategy(
        status_on_create=True,
        validates_whole_update=False,
        validates_spec_update=False,
        prepare_create=align_pod_cidrs,
        prepare_update=align_pod_cidrs,
        validate=validation.node,
        validate_update=validation.node_update,
        warnings=warnings.node_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation.node_change)}),
    ),
}
