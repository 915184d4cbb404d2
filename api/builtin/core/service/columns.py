"""Table columns of Services. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, labels_text
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field, name_of, wide_field
from kubechronicle.api.values.objects import ReadOnlyObject


def ingress_points(status: ReadOnlyObject | None) -> str:
    """Return the addresses of a load balancer, sorted and without repetitions."""
    points = at(status, "loadBalancer", "ingress", default=())
    found = {point.get("ip") or point.get("hostname") or "" for point in points}
    return ",".join(sorted(found - {""}))


def _external_ip(obj: ReadOnlyObject, spec: ReadOnlyObject) -> str:
    kind = spec.get("type")
    listed = spec.get("externalIPs") or []
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(listed) or "<none>"
    if kind == "LoadBalancer":
        points = ingress_points(obj.get("status"))
        return ",".join([*([points] if points else []), *listed]) or "<pending>"
    if kind == "ExternalName":
        name: str = spec.get("externalName") or ""
        return name
    return "<unknown>"


def _port(port: ReadOnlyObject) -> str:
    outer = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{outer}/{port.get('protocol') or 'TCP'}"


def _service(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [
        name_of(obj),
        spec.get("type") or "",
        addresses[0] or "<none>",
        _external_ip(obj, spec),
        ",".join(map(_port, spec.get("ports") or ())) or "<none>",
        age_of(obj, since),
        labels_text(spec.get("selector")),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "services": Printer(
        (
            NAME,
            field("Type", "core.v1.ServiceSpec.type"),
            field("Cluster-IP", "core.v1.ServiceSpec.clusterIP"),
            field("External-IP", "core.v1.ServiceSpec.externalIPs"),
            field("Port(s)", "core.v1.ServiceSpec.ports"),
            AGE,
            wide_field("Selector", "core.v1.ServiceSpec.selector"),
        ),
        _service,
    ),
}
