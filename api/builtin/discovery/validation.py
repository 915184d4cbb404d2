"""Validation of EndpointSlices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    immutable,
    non_special_ip,
    one_of,
    parse_ip,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.common.network_values import legacy_ip, strict_ip
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    internal,
    invalid_value,
    not_supported,
    required,
    too_many,
)
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
MAX_ENDPOINTS: Final = 1000
MAX_ADDRESSES: Final = 100
MAX_PORTS: Final = 20000
MAX_TOPOLOGY: Final = 16
MAX_HINTS: Final = 8
ZONE: Final = "topology.kubernetes.io/zone"


def endpoint_slice(obj: Object) -> list[Cause]:
    """Check that addresses have the slice's type and that port names differ."""
    return _header(obj) + _endpoints(obj)


def endpoint_slice_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed slice: its address type is immutable, and unchanged endpoints stay valid."""
    causes = _header(new) + (_endpoints(new) if new.get("endpoints") != old.get("endpoints") else [])
    return causes + immutable("addressType", new.get("addressType", ""), old.get("addressType", ""))


def _header(obj: Object) -> list[Cause]:
    return one_of(obj.get("addressType", ""), ADDRESS_TYPES, "addressType") + _ports(obj.get("ports") or ())


def _endpoints(obj: Object) -> list[Cause]:
    kind, given = obj.get("addressType", ""), obj.get("endpoints") or ()
    if len(given) > MAX_ENDPOINTS:
        return [too_many("endpoints", len(given), MAX_ENDPOINTS)]
    causes: list[Cause] = []
    for index, endpoint in enumerate(given):
        causes += _endpoint(endpoint, f"endpoints[{index}]", kind)
    return causes


def _ports(ports: Sequence[Object]) -> list[Cause]:
    if len(ports) > MAX_PORTS:
        return [too_many("ports", len(ports), MAX_PORTS)]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"ports[{index}]", port.get("name") or ""
        if name:
            causes += dns_label(name, f"{field}.name")
        if name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
        protocol = port.get("protocol")
        if protocol is None:
            causes.append(required(f"{field}.protocol"))
        elif protocol not in PROTOCOLS:
            causes.append(not_supported(f"{field}.protocol", protocol, PROTOCOLS))
        if port.get("appProtocol") is not None:
            causes += qualified_name(port["appProtocol"], f"{field}.appProtocol")
    return causes


def _endpoint(endpoint: Object, field: str, kind: str) -> list[Cause]:
    causes: list[Cause] = []
    addresses, path = endpoint.get("addresses") or (), f"{field}.addresses"
    if not addresses:
        causes.append(required(path, "must contain at least 1 address"))
    elif len(addresses) > MAX_ADDRESSES:
        causes.append(too_many(path, len(addresses), MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        if kind == "FQDN":
            causes += domain_name(address, f"{path}[{index}]")
        elif kind in ("IPv4", "IPv6"):
            causes += _of_family(address, path, f"{path}[{index}]", kind)
    if endpoint.get("nodeName") is not None:
        causes += dns_subdomain(endpoint["nodeName"], f"{field}.nodeName")
    topology, path = endpoint.get("deprecatedTopology") or {}, f"{field}.deprecatedTopology"
    if len(topology) > MAX_TOPOLOGY:
        causes.append(too_many(path, len(topology), MAX_TOPOLOGY))
    if topology:
        causes += validate_labels(topology, path)
    if ZONE in topology:
        causes.append(internal(f"{path}[{ZONE}]", "reserved key was not removed in conversion"))
    if endpoint.get("hostname") is not None:
        causes += dns_label(endpoint["hostname"], f"{field}.hostname")
    return causes + _hints(endpoint.get("hints") or {}, f"{field}.hints")


def _hints(hints: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for member, check in (("forZones", names.label_value), ("forNodes", names.dns_subdomain)):
        given, path = hints.get(member) or (), f"{field}.{member}"
        if len(given) > MAX_HINTS:
            causes.append(too_many(path, len(given), MAX_HINTS))
            continue
        seen: set[str] = set()
        for index, hint in enumerate(given):
            name, place = hint.get("name", ""), f"{path}[{index}].name"
            if name in seen:
                causes.append(duplicate(place, name))
            seen.add(name)
            causes += wrong(place, name, check(name))
    return causes


def _of_family(address: str, field: str, item: str, kind: str) -> list[Cause]:
    check = strict_ip if kind == "IPv6" else legacy_ip
    causes, parsed = check(address, item), parse_ip(address)
    if causes or parsed is None:
        return causes
    if f"IPv{parsed.version}" != kind:
        causes.append(invalid_value(field, address, f"must be an {kind} address"))
    return causes + non_special_ip(address, item)


def domain_name(name: str, field: str) -> list[Cause]:
    """Check that a name is a domain of at least two parts, with or without a final dot."""
    if not name:
        return [required(field)]
    domain = name.removesuffix(".")
    problems = names.dns_subdomain(domain)
    if problems:
        return [invalid_value(field, domain, ",".join(problems))]
    parts = domain.split(".")
    if len(parts) < 2:
        return [invalid_value(field, domain, "should be a domain with at least two segments separated by dots")]
    for part in parts:
        problems = names.dns_label(part)
        if problems:
            return [invalid_value(field, part, ",".join(problems))]
    return []
