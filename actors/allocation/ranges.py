"""The ranges of cluster IPs: those of the current ServiceCIDR objects.

A range is in use if at least one ServiceCIDR that is ready and not being deleted has it. A ServiceCIDR without a
condition is ready (KEP-1880). Each revision of an object is parsed once.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from kubechronicle.actors.admission.chain import AdmissionState
from kubechronicle.actors.allocation.bands import AddressRange, Network
from kubechronicle.api.values.caches import kept
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

SERVICE_CIDRS: Final = "servicecidrs.networking.k8s.io"
# Larger ranges of IPv6 are not supported (KEP-1880).
SHORTEST_IPV6_PREFIX: Final = 64


def is_ready(obj: Object) -> bool:
    """Return True if addresses may be allocated from a ServiceCIDR."""
    if obj["metadata"].get("deletionTimestamp"):
        return False
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "True")
    return True


def networks_of(obj: Object) -> list[Network]:
    """Return the ranges of a ServiceCIDR."""
    return [ipaddress.ip_network(one, strict=False) for one in obj["spec"].get("cidrs") or ()]


class Ranges:
    def __init__(self) -> None:
        self._parsed: dict[str, tuple[int, tuple[AddressRange, ...]]] = kept(
            "ranges of addresses"
        )  # by the object's name, with its revision

    def of(self, state: AdmissionState) -> list[AddressRange]:
        """Return all ranges in the order of the objects' names, each once."""
        entries = state.entries(SERVICE_CIDRS, "")
        if len(self._parsed) > 2 * len(entries):
            self._parsed.clear()
        ranges: dict[Network, AddressRange] = {}
        for entry in entries:
            for one in self._parse(entry):
                known = ranges.get(one.network)
                if known is None or (one.ready and not known.ready):
                    ranges[one.network] = one
        return list(ranges.values())

    def _parse(self, entry: Entry) -> tuple[AddressRange, ...]:
        known = self._parsed.get(entry.key.name)
        if known is not None and known[0] == entry.revision:
            return known[1]
        obj = entry.object()
        ready = is_ready(obj)
        parsed = tuple(
            AddressRange(network, ready)
            for network in networks_of(obj)
            if network.version == 4 or network.prefixlen >= SHORTEST_IPV6_PREFIX
        )
        self._parsed[entry.key.name] = (entry.revision, parsed)
        return parsed


# -- network -----------------------------------------------------------------------------------------------------------
#
# The configured network of Services: ranges of addresses, and a range of node ports.


DEFAULT_NODE_PORTS = range(30000, 32768)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNetwork:
    """``ranges``: one, or one of each family, the primary first. They become the ServiceCIDR ``kubernetes``."""

    ranges: tuple[str, ...]
    node_ports: range = DEFAULT_NODE_PORTS

    @property
    def families(self) -> tuple[str, ...]:
        """The families a Service can have, the default first."""
        return tuple(f"IPv{ipaddress.ip_network(one).version}" for one in self.ranges)

    @property
    def first_address(self) -> str:
        """The address of the Service ``kubernetes``."""
        return str(ipaddress.ip_network(self.ranges[0])[1])
