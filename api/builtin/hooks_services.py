"""Hooks of Services: which addresses and ports go together, and what a change of type drops, after Kubernetes'
``registry/core/service``."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.strategy import keep

Object = dict[str, Any]


def new_service(new: Object) -> None:
    """Headless services have an address, too: None. Addresses proper are allocated by the server."""
    spec = new["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") == "ExternalName":
        return
    if spec.get("clusterIP") == "None" or spec.get("clusterIPs") == ["None"]:
        headless_service(spec)
        return
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = "SingleStack"
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]


def headless_service(spec: Object) -> None:
    """Fill in the families of a service without an address."""
    spec["clusterIP"] = "None"
    spec["clusterIPs"] = ["None"]
    if spec.get("ipFamilies") or spec.get("ipFamilyPolicy"):
        policy = spec.setdefault("ipFamilyPolicy", "SingleStack")
        families = spec.setdefault("ipFamilies", ["IPv4"])
        if policy != "SingleStack" and len(families) == 1 and not spec.get("selector"):
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        return
    if spec.get("selector"):
        spec["ipFamilyPolicy"] = "SingleStack"
        spec["ipFamilies"] = ["IPv4"]
    else:
        # Nothing is selected, so nothing is known of the families of what will be behind it.
        spec["ipFamilyPolicy"] = "RequireDualStack"
        spec["ipFamilies"] = ["IPv4", "IPv6"]


def service_addresses_stay(new: Object, old: Object) -> None:
    """A replacement that names no addresses keeps the old ones while the type needs them; what the new type has no
    use for goes, unless it was changed in the same breath (then validation has its say)."""
    spec, held = new["spec"], old["spec"]
    if spec.get("type") != "ExternalName" and held.get("type") != "ExternalName":
        _keep_addresses(spec, held)
        _keep_node_ports(spec, held)
    _drop_what_the_type_lacks(spec, held)
    if spec.get("type") != "ExternalName" and held.get("type") == "ExternalName":
        new_service(new)


def _keep_addresses(spec: Object, held: Object) -> None:
    if spec.get("clusterIP", "") != held.get("clusterIP", "") and spec.get("clusterIPs") == held.get("clusterIPs"):
        # Old clients change the one field they know: the list follows.
        others = (spec.pop("clusterIPs", None) or [])[1:]
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"], *others]
    if not spec.get("clusterIP") and not spec.get("clusterIPs"):
        keep("clusterIP", spec, held)
        keep("clusterIPs", spec, held)
    elif spec.get("clusterIP") == held.get("clusterIP") and not spec.get("clusterIPs"):
        keep("clusterIPs", spec, held)
    elif spec.get("clusterIPs") == held.get("clusterIPs") and not spec.get("clusterIP"):
        keep("clusterIP", spec, held)
    for name in ("ipFamilies", "ipFamilyPolicy"):
        if not spec.get(name):
            keep(name, spec, held)


_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")

TYPE_FIELDS: Final = (
    (_WITH_ADDRESS, ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")),
    (_WITH_NODE_PORTS, ("externalTrafficPolicy", "healthCheckNodePort")),
    (("LoadBalancer",), ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
)
"""(types of a Service, fields that only they have)."""


def _drop_what_the_type_lacks(spec: Object, held: Object) -> None:
    kind, before = spec.get("type"), held.get("type")
    for kinds, fields in TYPE_FIELDS:
        if kind in kinds or before not in kinds:
            continue
        for name in fields:
            if name in spec and spec[name] == held.get(name):
                del spec[name]
    if kind not in _WITH_NODE_PORTS and before in _WITH_NODE_PORTS:
        numbers = [port.get("nodePort") for port in held.get("ports") or ()]
        if [port.get("nodePort") for port in spec.get("ports") or ()] == numbers:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)


def _keep_node_ports(spec: Object, held: Object) -> None:
    """Ports that say nothing of their node port keep it: matched by port and protocol."""
    if spec.get("type") not in _WITH_NODE_PORTS or held.get("type") not in _WITH_NODE_PORTS:
        return
    used = {port.get("nodePort") for port in spec.get("ports") or () if port.get("nodePort")}
    known = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in held.get("ports") or ()}
    for port in spec.get("ports") or ():
        number = known.get((port.get("port"), port.get("protocol")))
        if number and not port.get("nodePort") and number not in used:
            port["nodePort"] = number
    if spec.get("healthCheckNodePort") is None and spec.get("externalTrafficPolicy") == held.get(
        "externalTrafficPolicy"
    ):
        keep("healthCheckNodePort", spec, held)
