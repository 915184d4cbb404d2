"""Validation of Services: ports, types, addresses, policies and load balancer status.

Free addresses and node ports are not checked here but on allocation.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    dual_stack,
    non_special_ip,
    one_of,
    one_of_if_set,
    parse_ip,
    port_number,
    port_number_or_name,
    qualified_name,
    repeated,
)
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.network_values import ip_warnings, legacy_cidr, legacy_ip, staying_valid
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.values.objects import Object

TRAFFIC_POLICIES: Final = ("Cluster", "Local")
DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
CLOSE: Final = DISTRIBUTIONS[:1]
"""The distributions before PreferSameTrafficDistribution (KEP-3015)."""
FAMILIES: Final = ("IPv4", "IPv6")
MAX_AFFINITY_SECONDS: Final = 86400
SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
TOPOLOGY_MODE: Final = "service.kubernetes.io/topology-mode"
ONLY_BALANCERS: Final = "may only be used when `type` is 'LoadBalancer'"


def _headless(spec: Object) -> bool:
    return spec.get("clusterIPs") == ["None"]


def service(obj: Object, distributions: Sequence[str] = DISTRIBUTIONS, *, strict: bool = True) -> list[Cause]:
    """Check a new Service. ``distributions``: the values of trafficDistribution. ``strict``: the rules of addresses."""
    return _service(obj, {}, distributions, strict=strict)


def _service(obj: Object, old: Object, distributions: Sequence[str], *, strict: bool) -> list[Cause]:
    """Check a Service; addresses and ranges of the old one stay valid."""
    spec, annotations = obj["spec"], obj["metadata"].get("annotations") or {}
    held = old.get("spec") or {}
    causes: list[Cause] = []
    hints, mode = annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        causes.append(invalid_value(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, detail))
    kind, headless, ports = spec.get("type", ""), _headless(spec), spec.get("ports") or ()
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if headless and kind in ("LoadBalancer", "NodePort"):
        causes.append(invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        causes += _external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        causes += _port(port, f"spec.ports[{index}]", many=len(ports) > 1, seen=seen)
    if spec.get("selector"):
        causes += validate_labels(spec["selector"], "spec.selector")
    causes += _affinity(spec)
    if kind != "ExternalName":
        causes += cluster_ips(spec, staying_valid(held.get("clusterIPs") or (), strict=strict))
    known = staying_valid(held.get("externalIPs") or (), strict=strict)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        field = f"spec.externalIPs[{index}]"
        causes += legacy_ip(address, field, known) or non_special_ip(address, field)
    causes += one_of(kind, enum("core.v1.ServiceType"), "spec.type")
    causes += _port_conflicts(ports, kind)
    causes += _source_ranges(obj, old, strict=strict)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        causes.append(forbidden("spec.allocateLoadBalancerNodePorts", ONLY_BALANCERS))
    return causes + _balancer_class(spec, kind) + _policies(spec, kind, distributions)


def _external_name(spec: Object) -> list[Cause]:
    causes = [
        forbidden(f"spec.{name}", "may not be set for ExternalName services")
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(name)
    ]
    name = spec.get("externalName", "").removesuffix(".")
    return causes + (dns_subdomain(name, "spec.externalName") if name else [required("spec.externalName")])


def _port(port: Object, field: str, *, many: bool, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = port.get("name", "")
    if name:
        causes += dns_label(name, f"{field}.name")
        if name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
    elif many:
        causes.append(required(f"{field}.name"))
    causes += port_number(port.get("port", 0), f"{field}.port")
    causes += one_of(port.get("protocol", ""), PROTOCOLS, f"{field}.protocol")
    causes += port_number_or_name(port.get("targetPort", 0), f"{field}.targetPort")
    if port.get("appProtocol") is not None:
        causes += qualified_name(port["appProtocol"], f"{field}.appProtocol")
    return causes


def _affinity(spec: Object) -> list[Cause]:
    affinity, field = spec.get("sessionAffinity", ""), "spec.sessionAffinityConfig"
    causes = one_of(affinity, enum("core.v1.ServiceAffinity"), "spec.sessionAffinity")
    config = spec.get("sessionAffinityConfig")
    if affinity == "None" and config is not None:
        return [*causes, forbidden(field, "must not be set when session affinity is None")]
    if affinity != "ClientIP":
        return causes
    when = "when session affinity type is ClientIP"
    if config is None:
        return [*causes, required(field, when)]
    if config.get("clientIP") is None:
        return [*causes, required(f"{field}.clientIP", when)]
    seconds, field = config["clientIP"].get("timeoutSeconds"), f"{field}.clientIP.timeoutSeconds"
    if seconds is None:
        return [*causes, required(field, when)]
    if not 0 < seconds <= MAX_AFFINITY_SECONDS:
        detail = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
        causes.append(invalid_value(field, seconds, detail))
    return causes


def cluster_ips(spec: Object, held: Container[str] = ()) -> list[Cause]:
    """Check that addresses, families and the family policy agree; addresses of the old Service (``held``) stay
    valid."""
    field, address, addresses = "spec.clusterIPs", spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    causes: list[Cause] = []
    if address and not addresses:
        causes.append(required(field))
    elif address and addresses[0] != address:
        causes.append(invalid_value(field, addresses, "first value must match `clusterIP`"))
    elif addresses and not address:
        causes.append(invalid_value(field, addresses, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies") or []
    for index, (family, again) in enumerate(zip(families, repeated(families), strict=True)):
        if family not in FAMILIES:
            causes.append(not_supported(f"spec.ipFamilies[{index}]", family, FAMILIES))
        if again:
            causes.append(duplicate(f"spec.ipFamilies[{index}]", family))
    causes += one_of_if_set(spec.get("ipFamilyPolicy"), enum("core.v1.IPFamilyPolicy"), "spec.ipFamilyPolicy")
    bad = False
    for index, each in enumerate(addresses):
        if index == 0 and each == "None":
            if len(addresses) > 1:
                bad = True
                causes.append(invalid_value(field, addresses, "'None' must be the first and only value"))
            continue
        found = legacy_ip(each, f"{field}[{index}]", held)
        bad = bad or bool(found)
        causes += found
    if len(addresses) > 2:
        causes.append(invalid_value(field, addresses, "may only hold up to 2 values"))
    if bad or addresses == ["None"]:
        return causes
    parsed = [each for each in map(parse_ip, addresses) if each is not None]
    if len(addresses) > 1 and not dual_stack(parsed):
        causes.append(invalid_value(field, addresses, "may specify no more than one IP for each IP family"))
    for index, (each, family) in enumerate(zip(parsed, families, strict=False)):
        if family in FAMILIES and family != f"IPv{each.version}":
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            causes.append(invalid_value(f"{field}[{index}]", addresses[index], detail))
    return causes


def _port_conflicts(ports: Sequence[Object], kind: str) -> list[Cause]:
    causes: list[Cause] = []
    taken: set[tuple[Any, Any]] = set()
    if kind == "ClusterIP":
        causes += [
            forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for index, port in enumerate(ports)
            if port.get("nodePort", 0)
        ]
    for index, port in enumerate(ports):
        number, key = port.get("nodePort", 0), (port.get("protocol"), port.get("nodePort", 0))
        if number and key in taken:
            causes.append(duplicate(f"spec.ports[{index}].nodePort", number))
        taken.add(key)
    taken = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port", 0))
        if key in taken:
            shown = record({"protocol": key[0], "port": key[1]}, "ServicePort")
            causes.append(duplicate(f"spec.ports[{index}]", shown))
        taken.add(key)
    return causes


def _source_ranges(obj: Object, old: Object, *, strict: bool) -> list[Cause]:
    """Check the ranges of a load balancer's clients, in the field or else in the older annotation."""
    spec, annotations = obj["spec"], obj["metadata"].get("annotations") or {}
    kind, causes = spec.get("type", ""), list[Cause]()
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges:
        field = "spec.LoadBalancerSourceRanges"
        if kind != "LoadBalancer":
            causes.append(forbidden(field, ONLY_BALANCERS))
        before = (old.get("spec") or {}).get("loadBalancerSourceRanges") or ()
        known = staying_valid((value.strip() for value in before), strict=strict)
        for index, value in enumerate(ranges):
            causes += legacy_cidr(value.strip(), f"{field}[{index}]", known)
    elif SOURCE_RANGES in annotations:
        field = f"metadata.annotations[{SOURCE_RANGES}]"
        if kind != "LoadBalancer":
            causes.append(forbidden(field, ONLY_BALANCERS))
        text = annotations[SOURCE_RANGES].strip()
        before = ((old.get("metadata") or {}).get("annotations") or {}).get(SOURCE_RANGES)
        for value in text.split(",") if text and annotations[SOURCE_RANGES] != before else ():
            causes += legacy_cidr(value.strip(), field, staying_valid((), strict=strict))
    return causes


def _balancer_class(spec: Object, kind: str) -> list[Cause]:
    name, field = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if name is None:
        return []
    return qualified_name(name, field) if kind == "LoadBalancer" else [forbidden(field, ONLY_BALANCERS)]


def _needs_health_check(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _policies(spec: Object, kind: str, distributions: Sequence[str]) -> list[Cause]:
    causes: list[Cause] = []
    outer = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    policy, field = spec.get("externalTrafficPolicy", ""), "spec.externalTrafficPolicy"
    if outer:
        causes += one_of(policy, TRAFFIC_POLICIES, field)
    elif policy:
        causes.append(invalid_value(field, policy, "may only be set for externally-accessible services"))
    number, field = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if number:
        if _needs_health_check(spec):
            causes += port_number(number, field)
        else:
            detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            causes.append(invalid_value(field, number, detail))
    inner = spec.get("internalTrafficPolicy")
    if inner is None and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        causes.append(required("spec.internalTrafficPolicy"))
    causes += one_of_if_set(inner, TRAFFIC_POLICIES, "spec.internalTrafficPolicy")
    return causes + one_of_if_set(spec.get("trafficDistribution"), distributions, "spec.trafficDistribution")


# -- updates ----------------------------------------------------------------------------------------------------------


def service_update(
    new: Object, old: Object, distributions: Sequence[str] = DISTRIBUTIONS, *, strict: bool = True
) -> list[Cause]:
    """Check a changed Service: the first address and family are immutable, a second may be added or removed.

    Kubernetes checks the class of a load balancer once for the change and once for the whole Service.
    """
    spec, held = new["spec"], old["spec"]
    causes: list[Cause] = []
    if "ExternalName" not in (spec.get("type"), held.get("type")):
        if not (_headless(spec) and _headless(held)):
            causes += _immutable_primary(spec, held, "clusterIPs", "clusterIP")
        if not _headless(spec) and not _headless(held):
            causes += _immutable_primary(spec, held, "ipFamilies", "ipFamily")
    if spec.get("type") == held.get("type") == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != held.get("loadBalancerClass"):
            causes.append(invalid_value("spec.loadBalancerClass", name, "may not change once set"))
    causes += _balancer_class(spec, spec.get("type", ""))
    checked = _needs_health_check(spec) and _needs_health_check(held)
    if checked and spec.get("healthCheckNodePort", 0) != held.get("healthCheckNodePort", 0):
        causes.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    return causes + _service(new, old, distributions, strict=strict)


def _immutable_primary(spec: Object, held: Object, name: str, one: str) -> list[Cause]:
    """Reject a changed first item, and any changed item while the length stays the same."""
    after, before = spec.get(name) or [], held.get(name) or []
    field = f"spec.{name}"
    if len(after) == len(before):
        return [
            invalid_value(f"{field}[{index if one == 'clusterIP' else 0}]", after, "may not change once set")
            for index, value in enumerate(before)
            if value != after[index]
        ]
    causes: list[Cause] = []
    if not after:
        causes.append(invalid_value(f"{field}[0]", after, f"primary {one} can not be unset"))
    elif before and after[0] != before[0]:
        causes.append(invalid_value(f"{field}[0]", after, "may not change once set"))
    if len(after) == 1 and len(before) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = f"must be set to 'SingleStack' when releasing the secondary {one}"
        causes.append(invalid_value("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))
    return causes


def _ingress_points(obj: Object) -> Sequence[Object]:
    return ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()


def balancer_status(obj: Object, old: Object, *, strict: bool, modes: bool = True) -> list[Cause]:
    """Check the addresses and host names of a load balancer; Services also have an address mode.

    Addresses of the old status stay valid.
    """
    held = staying_valid((ingress.get("ip", "") for ingress in _ingress_points(old)), strict=strict)
    causes: list[Cause] = []
    for index, ingress in enumerate(_ingress_points(obj)):
        field = f"status.loadBalancer.ingress[{index}]"
        address, mode, name = ingress.get("ip", ""), ingress.get("ipMode"), ingress.get("hostname", "")
        if address:
            causes += legacy_ip(address, f"{field}.ip", held)
        if modes and mode is None and address:
            causes.append(required(f"{field}.ipMode", "must be specified when `ip` is set"))
        elif modes and mode is not None and not address:
            causes.append(forbidden(f"{field}.ipMode", "may not be specified when `ip` is not set"))
        elif modes:
            causes += one_of_if_set(mode, ("Proxy", "VIP"), f"{field}.ipMode")
        if name:
            causes += dns_subdomain(name, f"{field}.hostname")
            if parse_ip(name) is not None:
                causes.append(invalid_value(f"{field}.hostname", name, "must be a DNS name, not an IP address"))
    return causes


def service_status(new: Object, old: Object, *, strict: bool = True) -> list[Cause]:
    """Check a status update: only load balancers have addresses."""
    if _ingress_points(new) and new["spec"].get("type") != "LoadBalancer":
        detail = "may only be used when `spec.type` is 'LoadBalancer'"
        return [forbidden("status.loadBalancer.ingress", detail)]
    return balancer_status(new, old, strict=strict)


def balancer_status_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about addresses of a load balancer that are not in canonical form."""
    return [
        warning
        for index, ingress in enumerate(_ingress_points(new))
        if ingress.get("ip")
        for warning in ip_warnings(ingress["ip"], f"status.loadBalancer.ingress[{index}]")
    ]
