"""Defaults of Nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.values.objects import Object


def node_status(obj: Object) -> None:
    """Make all capacity allocatable if a node reports no allocatable resources."""
    if obj.get("allocatable") is None and obj.get("capacity"):
        obj["allocatable"] = dict(obj["capacity"])


def node_spec(obj: Object) -> None:
    """Make podCIDR the first of podCIDRs. If they disagree, podCIDR counts: the client knows only the older field."""
    alone, several = obj.get("podCIDR"), obj.get("podCIDRs")
    if alone and (not several or several[0] != alone):
        obj["podCIDRs"] = [alone]
    elif several and not alone:
        obj["podCIDR"] = several[0]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "core.v1.NodeSpec": node_spec,
    "core.v1.NodeStatus": node_status,
}
