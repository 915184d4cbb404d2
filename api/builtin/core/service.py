"""Service: an address and ports for a set of pods. Its validation stands in service_validation.py.

Source: Kubernetes' ``registry/core/service``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, labels_text
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import cidr_warnings, ip_warnings
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of, wide_field
from kubechronicle.api.builtin.core import service_validation
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

CLIENT_IP_AFFINITY_SECONDS: Final = 10800


def default_service(obj: Object) -> None:
    """Set the session affinity, type, ports and traffic policies."""
    spec = obj["spec"]
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_AFFINITY_SECONDS}}
    kind = spec.get("type") or "ClusterIP"
    spec["type"] = kind
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer", "ClusterIP") and spec.get("internalTrafficPolicy") is None:
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        balancer = (obj.get("status") or {}).get("loadBalancer") or {}
        for ingress in balancer.get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


# -- preparation ------------------------------------------------------------------------------------------------------

_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


def needs_address(spec: Object) -> bool:
    """Return whether the type of a Service has cluster addresses."""
    return bool(spec.get("type") != "ExternalName")


def needs_node_ports(spec: Object) -> bool:
    """Return whether the type of a Service has node ports."""
    return spec.get("type") in _WITH_NODE_PORTS


def needs_numbers(spec: Object) -> bool:
    """Return whether the ports of a Service get node ports without requesting them."""
    return needs_node_ports(spec) and not (_is_balancer(spec) and spec.get("allocateLoadBalancerNodePorts") is False)


def _is_balancer(spec: Object) -> bool:
    return bool(spec.get("type") == "LoadBalancer")


def needs_health_check(spec: Object) -> bool:
    """Return whether a Service has a health check port: a load balancer with external traffic policy Local."""
    return _is_balancer(spec) and spec.get("externalTrafficPolicy") == "Local"


def _reached_from_outside(spec: Object) -> bool:
    return needs_node_ports(spec) or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


TYPE_FIELDS: Final[tuple[tuple[Callable[[Object], bool], tuple[str, ...]], ...]] = (
    (needs_address, ("clusterIP", "clusterIPs")),
    (needs_address, ("ipFamilies",)),
    (needs_address, ("ipFamilyPolicy",)),
    (needs_address, ("internalTrafficPolicy",)),
    (needs_health_check, ("healthCheckNodePort",)),
    (_is_balancer, ("allocateLoadBalancerNodePorts",)),
    (_is_balancer, ("loadBalancerClass",)),
    (_reached_from_outside, ("externalTrafficPolicy",)),
)
"""(predicate of Services that use the fields, fields that are dropped together)."""


def prepare_new_service(new: Object) -> None:
    """Set clusterIPs if only clusterIP is set."""
    pair_addresses(new["spec"], None)
    _drop_inner_policy(new["spec"])


def prepare_service_update(new: Object, old: Object) -> None:
    """Keep allocated addresses and ports, and drop fields that the new type does not use."""
    keep_allocated(new["spec"], old["spec"])
    pair_addresses(new["spec"], old["spec"])
    drop_unused_type_fields(new, old)
    _drop_inner_policy(new["spec"])


def _drop_inner_policy(spec: Object) -> None:
    """Drop the internal traffic policy of an ExternalName Service, which kube-apiserver never shows.

    A value that is invalid for every type stays for the validation.
    """
    if not needs_address(spec) and spec.get("internalTrafficPolicy") in service_validation.TRAFFIC_POLICIES:
        del spec["internalTrafficPolicy"]


def drop_unused_type_fields(new: Object, old: Object) -> None:
    """Drop unchanged fields that the new type does not use, and the status of a former load balancer."""
    spec, held = new["spec"], old["spec"]
    unneeded = [fields for needed, fields in TYPE_FIELDS if needed(held) and not needed(spec)]
    for fields in unneeded:
        if all((spec.get(name) or None) == (held.get(name) or None) for name in fields):
            for name in fields:
                spec.pop(name, None)
    if needs_node_ports(held) and not needs_node_ports(spec) and _numbers(spec) <= _numbers(held):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    status = new.get("status") or {}
    if not _is_balancer(spec) and status.get("loadBalancer"):
        new["status"] = {**status, "loadBalancer": {}}


def _numbers(spec: Object) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


def keep_allocated(spec: Object, held: Object) -> None:
    """Copy allocated addresses and ports from the old spec where the new one leaves them out."""
    if needs_address(spec) and needs_address(held):
        if not spec.get("clusterIP") and held.get("clusterIP"):
            spec["clusterIP"] = held["clusterIP"]
        if not spec.get("clusterIPs") and held.get("clusterIPs"):
            spec["clusterIPs"] = list(held["clusterIPs"])
    if needs_numbers(spec) and needs_numbers(held):
        _keep_node_ports(spec.get("ports") or (), held.get("ports") or ())
    number = held.get("healthCheckNodePort", 0)
    if needs_health_check(spec) and needs_health_check(held) and number and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = number


def _keep_node_ports(ports: Sequence[Object], held: Sequence[Object]) -> None:
    """Copy node ports by port name, unless another port now requests the number."""
    used = {port.get("nodePort", 0) for port in ports} & {port.get("nodePort", 0) for port in held}
    known = {port.get("name", ""): port.get("nodePort", 0) for port in held}
    for port in ports:
        number = known.get(port.get("name", ""), 0)
        if number and not port.get("nodePort") and number not in used:
            port["nodePort"] = number


def pair_addresses(spec: Object, held: Object | None) -> None:
    """Keep ``clusterIP`` the first of ``clusterIPs``: old clients know and change only ``clusterIP``."""
    address, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if held is None:
        if address and not addresses:
            spec["clusterIPs"] = [address]
        return
    before, all_before = held.get("clusterIP", ""), held.get("clusterIPs") or []
    if all_before and not addresses and address == before:
        spec["clusterIPs"] = addresses = list(all_before)
    if address != before and addresses == all_before:
        if address:
            spec["clusterIPs"] = [address]
        elif before:
            spec.pop("clusterIPs", None)


# -- warnings ---------------------------------------------------------------------------------------------------------

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


# -- table columns ----------------------------------------------------------------------------------------------------


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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
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


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="services",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        create_on_update=True,
        returns_deleted=True,
        prepare_create=prepare_new_service,
        prepare_update=prepare_service_update,
        validate=service_validation.service,
        validate_update=service_validation.service_update,
        without_gates={
            "RelaxedServiceNameValidation": {"names": "label1035"},
            "PreferSameTrafficDistribution": {
                "validate": partial(service_validation.service, distributions=service_validation.CLOSE),
                "validate_update": partial(service_validation.service_update, distributions=service_validation.CLOSE),
            },
        },
        warnings=service_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=service_validation.service_status,
                    warnings=service_validation.balancer_status_warnings,
                )
            }
        ),
    ),
    default_functions={"core.v1.Service": default_service},
    printer=Printer(
        (
            NAME,
            field_column("Type", "core.v1.ServiceSpec.type"),
            field_column("Cluster-IP", "core.v1.ServiceSpec.clusterIP"),
            field_column("External-IP", "core.v1.ServiceSpec.externalIPs"),
            field_column("Port(s)", "core.v1.ServiceSpec.ports"),
            AGE,
            wide_field("Selector", "core.v1.ServiceSpec.selector"),
        ),
        _cells,
    ),
)
