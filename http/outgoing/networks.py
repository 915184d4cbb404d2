"""The networks that this server connects to, and the way to each: direct, or through a proxy of the operator's.

A connection is a connected socket, whatever leads to it. So its user does TLS and HTTP as on a direct one.

    kubelets, pods, Services, extension API servers, webhooks named by a Service     Network.CLUSTER
    other webhooks, identity providers that ask for it                                Network.CONTROL_PLANE
    all others                                                                        Network.DIRECT

Source: the uses of NetworkContext in kube-apiserver. The proxies are in http/egress/.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import trio


class Network(enum.StrEnum):
    """The names of EgressSelectorConfiguration, in lower case."""

    DIRECT = ""
    CONTROL_PLANE = "controlplane"
    CLUSTER = "cluster"


class ProxyFailed(OSError):
    """No connection through a proxy. The text is whole: neither the address nor a cause is to be added."""


Connect = Callable[[str, int], Awaitable[trio.SocketStream]]
"""(host, port) -> a connection. Raises OSError."""


class Networks:
    """The ways to the networks. ``proxies``: those that are not reached directly."""

    def __init__(self, proxies: Mapping[Network, Connect] = MappingProxyType({})) -> None:
        self._proxies = dict(proxies)

    def is_proxied(self, network: Network) -> bool:
        """Tell whether connections to a network lead through a proxy."""
        return network in self._proxies

    def connect_to(self, network: Network) -> Connect:
        """Return the function that connects to hosts of a network."""
        return self._proxies.get(network, trio.open_tcp_stream)


DIRECT: Final = Networks()
"""All networks are reached directly."""
