"""Endpoints: the addresses behind a Service, in the form before EndpointSlices.

Source: Kubernetes' ``registry/core/endpoints``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, joined
from kubechronicle.api.builtin.common.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    non_special_ip,
    one_of,
    port_number,
    qualified_name,
)
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import ip_warnings, legacy_ip, staying_valid
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def validate_endpoints(obj: Object, *, strict: bool = True) -> list[Cause]:
    """Check that each subset has addresses, and that several ports have names."""
    causes: list[Cause] = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for group in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(group) or ()):
                causes += _address(address, f"{field}.{group}[{position}]", strict=strict)
        ports = subset.get("ports") or ()
        for position, port in enumerate(ports):
            causes += _port(port, f"{field}.ports[{position}]", many=len(ports) > 1)
    return causes


def validate_endpoints_update(new: Object, old: Object, *, strict: bool = True) -> list[Cause]:
    """Check changed subsets; unchanged ones stay valid."""
    if new.get("subsets") == old.get("subsets"):
        return []
    return validate_endpoints(new, strict=strict)


def _address(address: Object, field: str, *, strict: bool) -> list[Cause]:
    causes = legacy_ip(address.get("ip", ""), f"{field}.ip", staying_valid((), strict=strict))
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


_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CONTROLLER: Final = "endpoint-controller"


def endpoints_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about addresses not in canonical form, except in the endpoints controller's objects."""
    if (new["metadata"].get("labels") or {}).get(_MANAGED_BY) == _ENDPOINTS_CONTROLLER:
        return []
    warnings: list[str] = []
    for index, subset in enumerate(new.get("subsets") or ()):
        for member in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(member) or ()):
                warnings += ip_warnings(address.get("ip", ""), f"subsets[{index}].{member}[{position}].ip")
    return warnings


ENDPOINTS_SHOWN: Final = 3


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _endpoints_text(subsets: Iterable[ReadOnlyObject]) -> str:
    shown: list[str] = []
    total = 0
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        # Headless services may have no ports: then addresses are shown alone.
        if ports:
            listed = [_host_port(ip, port.get("port", 0)) for port in ports for ip in addresses[:ENDPOINTS_SHOWN]]
        else:
            listed = addresses
        total += len(addresses) * max(1, len(ports or ()))
        shown += listed[: ENDPOINTS_SHOWN - len(shown)]
    return joined(shown, ENDPOINTS_SHOWN, total=total)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    subsets = obj.get("subsets")
    return [name_of(obj), _endpoints_text(subsets) if subsets else "<none>", age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="endpoints",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        status=False,
        create_on_update=True,
        validate=validate_endpoints,
        validate_update=validate_endpoints_update,
        warnings=endpoints_warnings,
    ),
    default_values={"core.v1.EndpointPort": {"protocol": "TCP"}},
    printer=Printer((NAME, field_column("Endpoints", "core.v1.Endpoints.subsets"), AGE), _cells),
)
