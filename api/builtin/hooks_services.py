"""Hooks of Services: what a change of type drops, after Kubernetes' ``registry/core/service``. Which families,
addresses and ports a Service has is settled before, by who gives them out.

A field the new type has no use for goes, unless it was changed in the same breath: then validation has its say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Object = dict[str, Any]

_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


def _needs_address(spec: Object) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _needs_node_ports(spec: Object) -> bool:
    return spec.get("type") in _WITH_NODE_PORTS


def _is_balancer(spec: Object) -> bool:
    return bool(spec.get("type") == "LoadBalancer")


def _needs_health_check(spec: Object) -> bool:
    return _is_balancer(spec) and spec.get("externalTrafficPolicy") == "Local"


def _reached_from_outside(spec: Object) -> bool:
    return _needs_node_ports(spec) or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


TYPE_FIELDS: Final[tuple[tuple[Callable[[Object], bool], tuple[str, ...]], ...]] = (
    (_needs_address, ("clusterIP", "clusterIPs")),
    (_needs_address, ("ipFamilies",)),
    (_needs_address, ("ipFamilyPolicy",)),
    (_needs_address, ("internalTrafficPolicy",)),
    (_needs_health_check, ("healthCheckNodePort",)),
    (_is_balancer, ("allocateLoadBalancerNodePorts",)),
    (_is_balancer, ("loadBalancerClass",)),
    (_reached_from_outside, ("externalTrafficPolicy",)),
)
"""(which Services have a use for the fields, fields that go together)."""


def drop_what_the_type_lacks(new: Object, old: Object) -> None:
    """What the new type has no use for goes, from the status of a load balancer, too."""
    spec, held = new["spec"], old["spec"]
    unneeded = [fields for needed, fields in TYPE_FIELDS if needed(held) and not needed(spec)]
    for fields in unneeded:
        if all((spec.get(name) or None) == (held.get(name) or None) for name in fields):
            for name in fields:
                spec.pop(name, None)
    if _needs_node_ports(held) and not _needs_node_ports(spec) and _numbers(spec) <= _numbers(held):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    status = new.get("status") or {}
    if not _is_balancer(spec) and status.get("loadBalancer"):
        new["status"] = {**status, "loadBalancer": {}}


def _numbers(spec: Object) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
