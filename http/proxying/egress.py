"""The proxies of EgressSelectorConfiguration: a way to each network that is not reached directly.

    Direct                     no proxy
    HTTPConnect, TCP or UDS    the socket to the proxy, after the answer to CONNECT
    HTTPConnect over TLS       one end of a socket pair; a task carries the bytes of the other
    GRPC                       the same, with konnectivity's packets

Each connection has a proxy connection of its own. A proxy that takes no connection is not tried again: the request of
the client fails at once.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from kubechronicle.api.configuration import egress_selector as configuration
from kubechronicle.api.configuration.egress_selector import (
    EgressConnection,
    EgressSelection,
    EgressTransport,
    TCPTransport,
)
from kubechronicle.eventlog.restarts import begin_apart, start_apart
from kubechronicle.http.outgoing.addresses import NOBODY, Judge
from kubechronicle.http.outgoing.networks import Connect, Network, Networks, ProxyFailed
from kubechronicle.http.outgoing.proxies import HttpProxy, tunnel
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer, load_credentials
from kubechronicle.http.proxying.egress_metrics import CONNECT, PROXY, EgressMetrics
from kubechronicle.http.proxying.konnectivity import Tunnel

DIAL_WAIT: Final = 30.0
"""Seconds for a connection through a proxy in all."""
NOT_RUNNING: Final = "no connection is made while the server starts or stops"
NETWORKS: Final = {network.value: network for network in (Network.CONTROL_PLANE, Network.CLUSTER)}


class Egress:
    """The proxies of one server. ``run`` is a child of the supervision tree, and connections need it.

    ``networks``: for those who connect. ``metrics``: to be registered. ``judge``: of addresses.
    """

    def __init__(self, selections: Sequence[EgressSelection], judge: Judge = NOBODY) -> None:
        self.metrics = EgressMetrics()
        self._nursery: trio.Nursery | None = None
        proxies: dict[Network, Connect] = {}
        for selection in selections:
            network = NETWORKS.get(selection.name.lower())
            if network is not None and selection.connection.proxy_protocol != configuration.DIRECT:
                proxies[network] = self._way(selection.connection)
        self.networks = Networks(proxies, judge)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry the bytes of connections until cancelled. All connections end then."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def _way(self, connection: EgressConnection) -> Connect:
        transport = connection.transport or EgressTransport()
        if transport.uds is not None:
            path = transport.uds.uds_name
            if connection.proxy_protocol == configuration.GRPC:
                return self._counted("grpc", "uds", partial(_unix_socket, path), self._grpc)
            return self._counted("http_connect", "uds", partial(_unix_socket, path), partial(_through, path))
        tcp = transport.tcp or TCPTransport()
        files = tcp.tls_config
        context = None if files is None else ProxyFiles(tcp).context
        proxy = HttpProxy(tcp.url, context, "" if files is None else files.tls_server_name)
        return self._counted("http_connect", "tcp", partial(_connected, proxy), partial(self._tunnel, proxy))

    def _counted(
        self,
        protocol: str,
        transport: str,
        connect: Callable[[], Awaitable[trio.SocketStream]],
        dial: Callable[[trio.SocketStream, str], Awaitable[trio.SocketStream]],
    ) -> Connect:
        """Return a way of two steps, with its metrics. ``dial`` owns the connection to the proxy."""
        metrics, labels = self.metrics, (protocol, transport)

        async def way(host: str, port: int) -> trio.SocketStream:
            started, stage = trio.current_time(), CONNECT
            metrics.starts[labels] += 1
            try:
                with trio.fail_after(DIAL_WAIT):
                    proxy = await connect()
                    stage = PROXY
                    found = await dial(proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            except (OSError, trio.TooSlowError) as error:
                metrics.failures[*labels, stage] += 1
                if isinstance(error, trio.TooSlowError):
                    raise ProxyFailed("dial timeout, context") from None
                raise
            metrics.observe(labels, trio.current_time() - started)
            return found

        return way

    async def _grpc(self, proxy: trio.SocketStream, address: str) -> trio.SocketStream:
        nursery = await self._running(proxy)
        tunnel = Tunnel(proxy, address, self.metrics, nursery)
        found: trio.SocketStream = await begin_apart(nursery, tunnel.carry)
        return found

    async def _tunnel(self, proxy: HttpProxy, raw: trio.SocketStream, address: str) -> trio.SocketStream:
        return await proxy.tunnel(raw, address, self._start)

    def _start(self, function: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is None:
            raise ProxyFailed(NOT_RUNNING)
        start_apart(self._nursery, function)

    async def _running(self, stream: trio.abc.AsyncResource) -> trio.Nursery:
        if self._nursery is None:
            await trio.aclose_forcefully(stream)
            raise ProxyFailed(NOT_RUNNING)
        return self._nursery


class ProxyFiles:
    """The certificate files of a proxy, which are read again when they change."""

    def __init__(self, tcp: TCPTransport) -> None:
        files = tcp.tls_config
        assert files is not None
        self._server = RemoteServer(
            url=tcp.url,
            ca=Path(files.ca_bundle) if files.ca_bundle else None,
            certificate=Path(files.client_cert),
            key=Path(files.client_key),
        )
        self._version: tuple[object, ...] | None = None
        self._credentials: Credentials | None = None

    async def context(self) -> ssl.SSLContext:
        """Return the context from the present files. Raises ValueError if the first ones are unusable."""
        return (await trio.to_thread.run_sync(self.load)).context

    def load(self) -> Credentials:
        version = self._server.version()
        if self._credentials is None or version != self._version:
            try:
                self._credentials = load_credentials(self._server)
            except ValueError:
                if self._credentials is None:
                    raise
            self._version = version
        return self._credentials


async def _connected(proxy: HttpProxy) -> trio.SocketStream:
    """Return a connection to a proxy. Raises OSError."""
    try:
        return await trio.open_tcp_stream(*proxy.place)
    except OSError as error:
        raise ProxyFailed(f"dial tcp {proxy.address}: {_reason(error)}") from None


async def _unix_socket(path: str) -> trio.SocketStream:
    try:
        return await trio.open_unix_socket(path)
    except OSError as error:
        raise ProxyFailed(f"dial unix {path}: {_reason(error)}") from None


async def _through(path: str, proxy: trio.SocketStream, address: str) -> trio.SocketStream:
    return await tunnel(proxy, path, address)


def _reason(error: OSError) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None or isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__ or cause
    number = cause.errno if isinstance(cause, OSError) else None
    return f"connect: {os.strerror(number).lower()}" if number and number > 0 else str(cause)
