"""The networks that this server connects to, and the way to each: direct, or through a proxy of the operator's.

A connection is a connected socket, whatever leads to it. So its user does TLS and HTTP as on a direct one.

    kubelets, pods, Services, extension API servers, webhooks named by a Service     Network.CLUSTER
    other webhooks, identity providers that ask for it                                Network.CONTROL_PLANE
    all others                                                                        Network.DIRECT

Every connection whose address a client can choose is made here. Invariant: a socket is only connected to an address
that the judge (addresses.py) has allowed. A name is resolved once: it cannot mean another address after the judgement.
Source: the uses of NetworkContext in kube-apiserver. The proxies are in http/egress/.
"""

from __future__ import annotations

import enum
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Final

import trio

from kubechronicle.http.outgoing.addresses import NOBODY, Judge, Reach


class Network(enum.StrEnum):
    """The names of EgressSelectorConfiguration, in lower case."""

    DIRECT = ""
    CONTROL_PLANE = "controlplane"
    CLUSTER = "cluster"


class ProxyFailed(OSError):
    """No connection through a proxy. The text is whole: neither the address nor a cause is to be added."""


class NotAllowed(ProxyFailed):
    """The judge does not allow the address. The text is kube-apiserver's."""

    def __init__(self) -> None:
        super().__init__("address not allowed")


Connect = Callable[[str, int], Awaitable[trio.SocketStream]]
"""(host, port) -> a connection. Raises OSError."""

STAGGER: Final = 0.25
"""Seconds between attempts at the addresses of a name (RFC 8305: Connection Attempt Delay)."""


class Networks:
    """The ways to the networks. ``proxies``: those that are not reached directly. ``judge``: of addresses."""

    def __init__(self, proxies: Mapping[Network, Connect] = MappingProxyType({}), judge: Judge = NOBODY) -> None:
        self._proxies = dict(proxies)
        self._judge = judge
        self._ways = {way: partial(self._connect, *way) for way in product(Network, Reach)}

    def is_proxied(self, network: Network) -> bool:
        """Tell whether connections to a network lead through a proxy."""
        return network in self._proxies

    def connect_to(self, network: Network, reach: Reach = Reach.OTHERS) -> Connect:
        """Return the function that connects to hosts of a network, always the same one. It raises NotAllowed."""
        return self._ways[network, reach]

    async def _connect(self, network: Network, reach: Reach, host: str, port: int) -> trio.SocketStream:
        proxy = self._proxies.get(network)
        # A proxy resolves names itself, and perhaps nobody else can. Only those that must be unicast are resolved here.
        names = proxy is None or reach is Reach.UNICAST
        addresses = await _resolve(host, port, names=names)
        if not all(self._judge.allows(each, port, reach) for each in addresses):
            raise NotAllowed
        if proxy is None:
            return await _connected(addresses, port)
        return await proxy(addresses[0] if names else host, port)


async def _resolve(host: str, port: int, *, names: bool) -> Sequence[str]:
    """Return the addresses of a host. Raises NotAllowed, OSError. ``names``: resolve names; without, they have none."""
    if not host:
        raise NotAllowed  # getaddrinfo takes it for this machine
    try:
        flags = 0 if names else socket.AI_NUMERICHOST
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror:
        if names:
            raise
        return ()
    except ValueError as error:  # of a name with a NUL, or an empty or a long label
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def _connected(addresses: Sequence[str], port: int) -> trio.SocketStream:
    """Return a connection to the first address that takes one. The next is tried after STAGGER, or a failure."""
    if len(addresses) == 1:
        return await trio.open_tcp_stream(addresses[0], port)
    streams: list[trio.SocketStream] = []
    failures: list[OSError] = []

    async def attempt(address: str, failed: trio.Event) -> None:
        try:
            streams.append(await trio.open_tcp_stream(address, port))
            nursery.cancel_scope.cancel()
        except OSError as error:
            failures.append(error)
            failed.set()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(STAGGER):
                    await failed.wait()
        if not streams:
            raise failures[-1]
        return streams.pop(0)
    finally:
        for stream in streams:
            stream.socket.close()


DIRECT: Final = Networks()
"""All networks are reached directly, by a program without listeners."""
DIRECTLY: Final = DIRECT.connect_to(Network.DIRECT)
