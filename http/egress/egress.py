"""The proxies of EgressSelectorConfiguration: a way to each network that is not reached directly.

    Direct                     no proxy
    HTTPConnect, TCP or UDS    the socket to the proxy, after the answer to CONNECT
    HTTPConnect over TLS       one end of a socket pair; a task here carries the bytes of the other
    GRPC                       the same, with konnectivity's packets

Each connection has a proxy connection of its own. A proxy that takes no connection is not tried again: the request of
the client fails at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from kubechronicle.api.configuration import egress_selector as configuration
from kubechronicle.api.configuration.egress_selector import Connection, EgressSelection, TCPTransport, Transport
from kubechronicle.eventlog.restarts import begin_apart, start_apart
from kubechronicle.http.egress.http_connect import open_tunnel
from kubechronicle.http.egress.konnectivity import Tunnel
from kubechronicle.http.egress.metrics import CONNECT, PROXY, EgressMetrics
from kubechronicle.http.outgoing.addresses import NOBODY, Judge
from kubechronicle.http.outgoing.networks import Connect, Network, Networks, ProxyFailed
from kubechronicle.http.outgoing.remote_server import Credentials, RemoteServer, load_credentials
from kubechronicle.http.streaming.copying import copy_both
from kubechronicle.http.wire.sockets import prepare_socket
from kubechronicle.http.wire.tls import TLSStream

DIAL_WAIT: Final = 30.0
"""Seconds for a connection through a proxy in all."""
PORTS: Final = {"https": 443, "http": 80}
NETWORKS: Final = {network.value: network for network in (Network.CONTROL_PLANE, Network.CLUSTER)}
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


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

    def _way(self, connection: Connection) -> Connect:
        transport = connection.transport or Transport()
        if transport.uds is not None:
            path = transport.uds.uds_name
            if connection.proxy_protocol == configuration.GRPC:
                return self._counted("grpc", "uds", partial(_unix_socket, path), self._grpc)
            return self._counted("http_connect", "uds", partial(_unix_socket, path), partial(_plain, path))
        proxy = HttpProxy(transport.tcp or TCPTransport())
        if proxy.is_tls:
            return self._counted("http_connect", "tcp", proxy.connect, partial(self._over_tls, proxy))
        return self._counted("http_connect", "tcp", proxy.connect, partial(_plain, proxy.address))

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

    async def _over_tls(self, proxy: HttpProxy, raw: trio.SocketStream, address: str) -> trio.SocketStream:
        tls = await proxy.shake_hands(raw)
        try:
            await open_tunnel(tls, proxy.address, address)
            nursery = await self._running(tls)
        except BaseException:
            tls.close_nowait()
            raise
        near, far = trio.socket.socketpair()
        start_apart(nursery, _carry, tls, trio.SocketStream(far))
        return trio.SocketStream(near)

    async def _running(self, stream: trio.abc.AsyncResource) -> trio.Nursery:
        if self._nursery is None:
            await trio.aclose_forcefully(stream)
            raise ProxyFailed("no connection is made while the server starts or stops")
        return self._nursery


class HttpProxy:
    """A proxy at a URL. Its certificate files are read again when they change."""

    def __init__(self, tcp: TCPTransport) -> None:
        parts, files = urlsplit(tcp.url), tcp.tls_config
        self.is_tls = files is not None
        self._place = (parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
        self.address = parts.netloc
        self._server: RemoteServer | None = None
        if files is not None:
            self._server = RemoteServer(
                url=tcp.url,
                ca=Path(files.ca_bundle) if files.ca_bundle else None,
                certificate=Path(files.client_cert),
                key=Path(files.client_key),
            )
            self._name = files.tls_server_name or self._place[0]
        self._version: tuple[object, ...] | None = None
        self._credentials: Credentials | None = None

    def load(self) -> Credentials:
        """Return the credentials from the present files. Raises ValueError if the first ones are unusable."""
        assert self._server is not None
        version = self._server.version()
        if self._credentials is None or version != self._version:
            try:
                self._credentials = load_credentials(self._server)
            except ValueError:
                if self._credentials is None:
                    raise
            self._version = version
        return self._credentials

    async def connect(self) -> trio.SocketStream:
        """Return a connection to the proxy. Raises OSError."""
        try:
            return await trio.open_tcp_stream(*self._place)
        except OSError as error:
            raise ProxyFailed(f"dial tcp {self.address}: {_reason(error)}") from None

    async def shake_hands(self, raw: trio.SocketStream) -> TLSStream:
        """Return TLS on a connection. Raises ProxyFailed."""
        tls: TLSStream | None = None
        try:
            context = (await trio.to_thread.run_sync(self.load)).context
            tls = TLSStream.wrap(_detached(raw), context, server_name=self._name)
            await tls.do_handshake()
        except (OSError, ValueError, *GONE) as error:
            if tls is not None:
                tls.close_nowait()
            raise ProxyFailed(f"tls: {error.__cause__ or error}") from None
        except BaseException:
            if tls is not None:
                tls.close_nowait()
            raise
        return tls


async def _unix_socket(path: str) -> trio.SocketStream:
    try:
        return await trio.open_unix_socket(path)
    except OSError as error:
        raise ProxyFailed(f"dial unix {path}: {_reason(error)}") from None


async def _plain(name: str, proxy: trio.SocketStream, address: str) -> trio.SocketStream:
    try:
        await open_tunnel(proxy, name, address)
    except BaseException:
        await trio.aclose_forcefully(proxy)
        raise
    return proxy


async def _carry(tls: TLSStream, far: trio.SocketStream) -> None:
    try:
        await copy_both(far, tls, draining=trio.Event())
    finally:
        tls.close_nowait()
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(far)


def _detached(stream: trio.SocketStream) -> socket.socket:
    """Return the socket of a stream, prepared for TLS."""
    raw = socket.socket(fileno=stream.socket.detach())
    prepare_socket(raw)
    return raw


def _reason(error: OSError) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None or isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__ or cause
    number = cause.errno if isinstance(cause, OSError) else None
    return f"connect: {os.strerror(number).lower()}" if number and number > 0 else str(cause)
