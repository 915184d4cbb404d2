"""Validation of Endpoints and EndpointSlices: what stands behind a Service."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    immutable,
    ip,
    non_special_ip,
    one_of,
    port_number,
    qualified_name,
    wrong,
)
from kubechronicle.api.field_errors import Cause, duplicate, invalid_value, required, too_many
from kubechronicle.api.metadata import validate_labels

Object = dict[str, Any]

ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
MAX_ENDPOINTS: Final = 1000
MAX_ADDRESSES: Final = 100
MAX_PORTS: Final = 20000
MAX_TOPOLOGY: Final = 16


def endpoints(obj: Object) -> list[Cause]:
    """Each subset has addresses; several ports have names."""
    causes: list[Cause] = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for group in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(group) or ()):
                causes += _address(address, f"{field}.{group}[{position}]")
        ports = subset.get("ports") or ()
        for position, port in enumerate(ports):
            causes += _port(port, f"{field}.ports[{position}]", many=len(ports) > 1)
    return causes


def _address(address: Object, field: str) -> list[Cause]:
    causes = ip(address.get("ip", ""), f"{field}.ip")
    if address.get("hostname"):
        causes += dns_label(address["hostname"], f"{field}.hostname")
    if address.get("nodeName") is not None:
        causes += dns_subdomain(address["nodeName"], f"{field}.nodeName")
    return causes + non_special_ip(address.get("ip", ""), f"{field}.ip")


def _port(port: Object, field: str, *, many: bool) -> list[Cause]:
    name = port.get("name", "")
    causes = dns_label(name, f"{field}.name") if name else [required(f"{field}.name")] if many else []
    causes += port_number(port.get("port", 0), f"{field}.port")
    causes += one_of(port.get("protocol", ""), PROTOCOLS, f"{field}.protocol")
    if port.get("appProtocol") is not None:
        causes += qualified_name(port["appProtocol"], f"{field}.appProtocol")
    return causes


def endpoint_slice(obj: Object) -> list[Cause]:
    """Addresses are of the slice's type, ports have different names."""
    kind = obj.get("addressType", "")
    causes = one_of(kind, ADDRESS_TYPES, "addressType")
    given = obj.get("endpoints") or ()
    if len(given) > MAX_ENDPOINTS:
        causes.append(too_many("endpoints", len(given), MAX_ENDPOINTS))
        given = ()
    for index, endpoint in enumerate(given):
        causes += _endpoint(endpoint, f"endpoints[{index}]", kind)
    ports = obj.get("ports") or ()
    if len(ports) > MAX_PORTS:
        return [*causes, too_many("ports", len(ports), MAX_PORTS)]
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"ports[{index}]", port.get("name") or ""
        if name:
            causes += dns_label(name, f"{field}.name")
        if name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
        causes += one_of(port.get("protocol", ""), PROTOCOLS, f"{field}.protocol")
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
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > MAX_TOPOLOGY:
        causes.append(too_many(f"{field}.deprecatedTopology", len(topology), MAX_TOPOLOGY))
    if topology:
        causes += validate_labels(topology, f"{field}.deprecatedTopology")
    if endpoint.get("hostname") is not None:
        causes += dns_label(endpoint["hostname"], f"{field}.hostname")
    for index, hint in enumerate((endpoint.get("hints") or {}).get("forZones") or ()):
        name = hint.get("name", "")
        causes += wrong(f"{field}.hints.forZones[{index}].name", name, names.label_value(name))
    return causes


def _of_family(address: str, field: str, item: str, kind: str) -> list[Cause]:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        parsed = None
    if parsed is None or f"IPv{parsed.version}" != kind:
        return [invalid_value(field, address, f"must be an {kind} address")]
    return non_special_ip(address, item)


def domain_name(name: str, field: str) -> list[Cause]:
    """A domain of two parts at least; a dot at its end says that it is complete."""
    if not name:
        return [required(field)]
    domain = name.removesuffix(".")
    causes = dns_subdomain(domain, field)
    if causes:
        return causes
    parts = domain.split(".")
    if len(parts) < 2:
        return [invalid_value(field, name, "should be a domain with at least two segments separated by dots")]
    return [cause for part in parts for cause in dns_label(part, field)]


def endpoint_slice_update(new: Object, old: Object) -> list[Cause]:
    """The type of addresses stays."""
    return immutable("addressType", new.get("addressType", ""), old.get("addressType", ""))
