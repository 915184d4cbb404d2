"""Validation of Endpoints: what stands behind a Service, in the older form."""

from __future__ import annotations

from kubechronicle.api.builtin.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    non_special_ip,
    one_of,
    port_number,
    qualified_name,
)
from kubechronicle.api.builtin.network_values import legacy_ip
from kubechronicle.api.errors.field_errors import Cause, required
from kubechronicle.api.values.objects import Object


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


def endpoints_update(new: Object, old: Object) -> list[Cause]:
    """The same for an update; what was accepted once stays."""
    if new.get("subsets") == old.get("subsets"):
        return []
    return endpoints(new)


def _address(address: Object, field: str) -> list[Cause]:
    causes = legacy_ip(address.get("ip", ""), f"{field}.ip")
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
