"""Table columns of Nodes. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of, wide_field
from kubechronicle.api.values.objects import ReadOnlyObject

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


def _node_status(obj: ReadOnlyObject) -> str:
    ready = condition(at(obj, "status", "conditions"), "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if at(obj, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or "<none>"


def _node_address(obj: ReadOnlyObject, kind: str) -> str:
    addresses = at(obj, "status", "addresses", default=())
    return next((address.get("address", "") for address in addresses if address.get("type") == kind), "<none>")


def _kernel(info: ReadOnlyObject) -> str:
    version: str = info.get("kernelVersion") or "<unknown>"
    architecture = info.get("architecture")
    return f"{version} ({architecture})" if architecture else version


def _node(obj: ReadOnlyObject, since: Since) -> list[Any]:
    info = at(obj, "status", "nodeInfo", default={})
    return [
        name_of(obj),
        _node_status(obj),
        _node_roles(obj["metadata"].get("labels") or {}),
        age_of(obj, since),
        info.get("kubeletVersion") or "",
        _node_address(obj, "InternalIP"),
        _node_address(obj, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        _kernel(info),
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "nodes": Printer(
        (
            NAME,
            Column("Status", text="The status of the node"),
            Column("Roles", text="The roles of the node"),
            AGE,
            field("Version", "core.v1.NodeSystemInfo.kubeletVersion"),
            wide_field("Internal-IP", "core.v1.NodeStatus.addresses"),
            wide_field("External-IP", "core.v1.NodeStatus.addresses"),
            wide_field("OS-Image", "core.v1.NodeSystemInfo.osImage"),
            wide_field("Kernel-Version", "core.v1.NodeSystemInfo.kernelVersion"),
            wide_field("Container-Runtime", "core.v1.NodeSystemInfo.containerRuntimeVersion"),
        ),
        _node,
    ),
}
