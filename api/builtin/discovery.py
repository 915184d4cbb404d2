"""EndpointSlice: a part of the addresses behind a Service, in discovery.k8s.io/v1 and v1beta1.

Source: Kubernetes' ``registry/discovery/endpointslice``, ``apis/discovery`` with its conversions, and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, joined
from kubechronicle.api.builtin.common.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    non_special_ip,
    parse_ip,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import ip_warnings, legacy_ip, staying_valid, strict_ip
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.common.version_conversion import lossless_pair, typed
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    internal,
    invalid_value,
    not_supported,
    required,
    too_many,
)
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

_PORT: Final[Mapping[str, Any]] = {"name": "", "protocol": "TCP"}


# -- preparation ------------------------------------------------------------------------------------------------------

HOSTNAME: Final = "kubernetes.io/hostname"


def count_slice_change(new: Object, old: Object) -> None:
    """Increment the generation when labels or any field outside of metadata change."""
    parts = [{name: part for name, part in each.items() if name != "metadata"} for each in (new, old)]
    labels = [each["metadata"].get("labels") for each in (new, old)]
    if parts[0] != parts[1] or labels[0] != labels[1]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def drop_topology(api_version: str, new: Object, old: Object | None) -> None:
    """Drop the deprecated topology when a request uses a newer version.

    A host name that the old object's topology already holds is moved to nodeName.
    """
    before = (old or {}).get("endpoints")
    if api_version.endswith("/v1beta1") or (old is not None and new.get("endpoints") == before):
        return
    known = {(one.get("deprecatedTopology") or {}).get(HOSTNAME) for one in before or ()} - {None, ""}
    for endpoint in new.get("endpoints") or ():
        node = (endpoint.pop("deprecatedTopology", None) or {}).get(HOSTNAME)
        if node and endpoint.get("nodeName") is None and node in known and not names.dns_subdomain(node):
            endpoint["nodeName"] = node


# -- validation -------------------------------------------------------------------------------------------------------

MAX_ENDPOINTS: Final = 1000
MAX_PORTS: Final = 20000
MAX_TOPOLOGY: Final = 16
MAX_HINTS: Final = 8
ZONE: Final = "topology.kubernetes.io/zone"


def validate_endpoint_slice(obj: Object, *, strict: bool = True) -> list[Cause]:
    """Check that addresses have the slice's type and that port names differ."""
    return _ports(obj.get("ports") or ()) + _endpoints(obj, strict=strict)


def validate_endpoint_slice_update(new: Object, old: Object, *, strict: bool = True) -> list[Cause]:
    """Check a changed slice; unchanged endpoints stay valid."""
    causes = _ports(new.get("ports") or ())
    return causes + (_endpoints(new, strict=strict) if new.get("endpoints") != old.get("endpoints") else [])


def _endpoints(obj: Object, *, strict: bool) -> list[Cause]:
    kind, given = obj.get("addressType", ""), obj.get("endpoints") or ()
    if len(given) > MAX_ENDPOINTS:
        return [too_many("endpoints", len(given), MAX_ENDPOINTS)]
    causes: list[Cause] = []
    for index, endpoint in enumerate(given):
        causes += _endpoint(endpoint, f"endpoints[{index}]", kind, staying_valid((), strict=strict))
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


def _endpoint(endpoint: Object, field: str, kind: str, valid: Container[str]) -> list[Cause]:
    causes: list[Cause] = []
    addresses, path = endpoint.get("addresses") or (), f"{field}.addresses"
    for index, address in enumerate(addresses):
        if kind == "FQDN":
            causes += domain_name(address, f"{path}[{index}]")
        elif kind in ("IPv4", "IPv6"):
            causes += _of_family(address, path, f"{path}[{index}]", kind, valid)
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


def _of_family(address: str, field: str, item: str, kind: str, valid: Container[str]) -> list[Cause]:
    causes = strict_ip(address, item) if kind == "IPv6" else legacy_ip(address, item, valid)
    parsed = parse_ip(address)
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


# -- warnings ---------------------------------------------------------------------------------------------------------

_CONTROLLERS: Final = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def endpoint_slice_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about FQDN slices, and about addresses not in canonical form except in controllers' slices."""
    warnings: list[str] = []
    if old is None and new.get("addressType") == "FQDN":
        warnings.append("spec.addressType: FQDN endpoints are deprecated")
    if (new["metadata"].get("labels") or {}).get("endpointslice.kubernetes.io/managed-by") in _CONTROLLERS:
        return warnings
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        for position, address in enumerate(endpoint.get("addresses") or ()):
            warnings += ip_warnings(address, f"endpoints[{index}].addresses[{position}]")
    return warnings


# -- table columns ----------------------------------------------------------------------------------------------------

LIST_SHOWN: Final = 3


def _slice_port(port: ReadOnlyObject) -> str:
    number = port.get("port")
    return str(number) if number is not None else port.get("name") or "*"


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType") or "",
        joined([_slice_port(port) for port in obj.get("ports") or ()], LIST_SHOWN, empty="<unset>"),
        joined(addresses, LIST_SHOWN, empty="<unset>"),
        age_of(obj, since),
    ]


# -- conversions ------------------------------------------------------------------------------------------------------

SLICE_V1: Final = "io.k8s.api.discovery.v1.EndpointSlice"
SLICE_V1BETA1: Final = "io.k8s.api.discovery.v1beta1.EndpointSlice"


def _slice_to_v1beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("deprecatedTopology", None) or {}
        zone, node = endpoint.pop("zone", None), endpoint.get("nodeName")
        if zone is not None:
            topology[ZONE] = zone
        if node is not None and not topology.get(HOSTNAME):
            topology[HOSTNAME] = node
        if topology:
            endpoint["topology"] = topology
    return typed(obj, "discovery.k8s.io/v1beta1", SLICE_V1BETA1)


def _slice_to_v1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("topology", None) or {}
        if ZONE in topology:
            endpoint["zone"] = topology.pop(ZONE)
        if HOSTNAME in topology and endpoint.setdefault("nodeName", topology[HOSTNAME]) == topology[HOSTNAME]:
            del topology[HOSTNAME]
        if topology:
            endpoint["deprecatedTopology"] = topology
    return typed(obj, "discovery.k8s.io/v1", SLICE_V1)


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="endpointslices.discovery.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=(),
        prepare_update=count_slice_change,
        prepare_as=drop_topology,
        validate=validate_endpoint_slice,
        validate_update=validate_endpoint_slice_update,
        warnings=endpoint_slice_warnings,
    ),
    gated_fields={
        "": (GatedField(gate="PreferSameTrafficDistribution", fields=("endpoints[].hints.forNodes",)),),
    },
    default_values={
        "discovery.v1.EndpointPort": _PORT,
        "discovery.v1beta1.EndpointPort": _PORT,
    },
    printer=Printer(
        (
            NAME,
            field_column("AddressType", "discovery.v1.EndpointSlice.addressType"),
            field_column("Ports", "discovery.v1.EndpointSlice.ports"),
            field_column("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
            AGE,
        ),
        _cells,
    ),
    converters=lossless_pair(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        "discovery.k8s.io/v1beta1",
        SLICE_V1,
        _slice_to_v1beta1,
        _slice_to_v1,
    ),
)
