"""Strategy of Service: an update keeps allocated addresses and ports, and a new type drops unused fields.

Source: Kubernetes' ``registry/core/service``. Address families, addresses and ports are allocated before, in
actors/allocation. A field that the new type does not use is dropped only if the request leaves it unchanged. If the
request changes it, validation rejects it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.service import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object

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
    if not needs_address(spec) and spec.get("internalTrafficPolicy") in validation.TRAFFIC_POLICIES:
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


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "services": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        create_on_update=True,
        returns_deleted=True,
        prepare_create=prepare_new_service,
        prepare_update=prepare_service_update,
        validate=validation.service,
        validate_update=validation.service_update,
        without_gates={
            "RelaxedServiceNameValidation": {"names": "label1035"},
            "PreferSameTrafficDistribution": {
                "validate": partial(validation.service, distributions=validation.CLOSE),
                "validate_update": partial(validation.service_update, distributions=validation.CLOSE),
            },
        },
        warnings=warnings.service_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation.service_status,
                    warnings=validation.balancer_status_warnings,
                )
            }
        ),
    ),
}
