"""The configured network of Services: ranges of addresses, and a range of node ports."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

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
