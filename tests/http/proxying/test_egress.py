"""Connections through HTTP proxies and a konnectivity proxy server, over TCP, TLS and Unix sockets."""

from __future__ import annotations

import gc
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest
import trio
import trio.testing
from certificates import CA
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kubechronicle.api.configuration import egress_selector
from kubechronicle.api.configuration.egress_selector import (
    EgressConnection,
    EgressSelection,
    EgressTransport,
    TCPTransport,
    TLSConfig,
    UDSTransport,
)
from kubechronicle.http.outgoing.networks import Connect, Network, ProxyFailed
from kubechronicle.http.proxying import konnectivity
from kubechronicle.http.proxying.dialing import ClientFiles, ClientTls, dial
from kubechronicle.http.proxying.egress import Egress
from tests.http.proxying.proxies import CLOSED, CUT, SILENT, ConnectProxy, KonnectivityServer, serve_unix

GRPC, HTTP = egress_selector.GRPC, egress_selector.HTTP_CONNECT


@asynccontextmanager
async def egress_to(protocol: str, transport: EgressTransport) -> AsyncIterator[tuple[Egress, Connect]]:
    connection = EgressConnection(proxy_protocol=protocol, transport=transport)
    egress = Egress([EgressSelection(name="Cluster", connection=connection)])
    assert egress.networks.is_proxied(Network.CLUSTER)
    assert not egress.networks.is_proxied(Network.CONTROL_PLANE)
    async with trio.open_nursery() as nursery:
        await nursery.start(egress.run)
        yield egress, egress.networks.connect_to(Network.CLUSTER)
        nursery.cancel_scope.cancel()


def unix(path: Path) -> EgressTransport:
    return EgressTransport(uds=UDSTransport(uds_name=str(path)))


@pytest.fixture
async def echo(nursery: trio.Nursery) -> int:
    """The port of a server that sends back what it gets."""

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    listeners = await nursery.start(trio.serve_tcp, handle, 0)
    return int(listeners[0].socket.getsockname()[1])


@pytest.fixture
async def konnectivity_server(nursery: trio.Nursery, tmp_path: Path) -> KonnectivityServer:
    server = KonnectivityServer()
    await serve_unix(nursery, str(tmp_path / "s"), server.handle)
    return server


async def echoed(connect: Connect, port: int, data: bytes) -> bytes:
    async with await connect("127.0.0.1", port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        received = b""
        while len(received) < len(data):
            received += await stream.receive_some()
        return received


DATA = bytes(range(256)) * 16_384  # 4 MiB: more than all buffers on the way


async def test_http_connect_over_tcp(nursery: trio.Nursery, echo: int) -> None:
    proxy = ConnectProxy()
    port = await proxy.serve_tcp(nursery)
    async with egress_to(HTTP, EgressTransport(tcp=TCPTransport(url=f"http://127.0.0.1:{port}"))) as (_, connect):
        assert await echoed(connect, echo, DATA) == DATA
    assert proxy.asked == [b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % echo]


async def test_http_connect_over_a_unix_socket(nursery: trio.Nursery, echo: int, tmp_path: Path) -> None:
    proxy = ConnectProxy()
    await serve_unix(nursery, str(tmp_path / "s"), proxy.handle)
    async with egress_to(HTTP, unix(tmp_path / "s")) as (egress, connect):
        assert await echoed(connect, echo, DATA) == DATA
        assert egress.metrics.starts == {("http_connect", "uds"): 1}


@pytest.mark.parametrize("trusted", [True, False])
async def test_http_connect_over_tls(nursery: trio.Nursery, echo: int, tmp_path: Path, *, trusted: bool) -> None:
    authority = CA("proxies")
    names = x509.SubjectAlternativeName([x509.DNSName("proxy.example.com")])
    usage = [ExtendedKeyUsageOID.SERVER_AUTH]
    server = authority.files(tmp_path, "proxy", usage=usage, extensions=[(names, False)])
    client = authority.files(tmp_path, "client")
    (tmp_path / "ca").write_bytes((authority if trusted else CA("others")).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server)
    context.load_verify_locations(cadata=authority.pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    proxy = ConnectProxy()
    port = await proxy.serve_tcp(nursery, context)
    files = TLSConfig(
        ca_bundle=str(tmp_path / "ca"),
        client_cert=str(client[0]),
        client_key=str(client[1]),
        tls_server_name="proxy.example.com",
    )
    transport = EgressTransport(tcp=TCPTransport(url=f"https://127.0.0.1:{port}", tls_config=files))
    async with egress_to(HTTP, transport) as (egress, connect):
        if trusted:
            assert await echoed(connect, echo, DATA) == DATA
        else:
            with pytest.raises(ProxyFailed, match="certificate verify failed"):
                await connect("127.0.0.1", echo)
            assert egress.metrics.failures == {("http_connect", "tcp", "proxy"): 1}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            r"proxy error from .* while dialing .*:1, code 502: 502 Bad Gateway",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "unexpected 5 bytes of buffered data from CONNECT proxy"),
        (b"SSH-2.0\r\n\r\n", "reading HTTP response from CONNECT to 127.0.0.1:1 via proxy .* failed: malformed"),
        (b"HTTP/1.1 200 OK\r\n", "failed: unexpected EOF"),
    ],
)
async def test_refusals_of_an_http_proxy(nursery: trio.Nursery, tmp_path: Path, answer: bytes, error: str) -> None:
    proxy = ConnectProxy()
    proxy.answer = answer
    await serve_unix(nursery, str(tmp_path / "s"), proxy.handle)
    async with egress_to(HTTP, unix(tmp_path / "s")) as (egress, connect):
        with pytest.raises(ProxyFailed, match=error):
            await connect("127.0.0.1", 1)
        assert egress.metrics.failures == {("http_connect", "uds", "proxy"): 1}


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
async def test_a_proxy_that_is_not_there(tmp_path: Path, protocol: str) -> None:
    async with egress_to(protocol, unix(tmp_path / "none")) as (egress, connect):
        with pytest.raises(ProxyFailed, match=r"dial unix .*/none: connect: no such file or directory"):
            await connect("127.0.0.1", 1)
        ((*_, stage),) = egress.metrics.failures
        assert stage == "connect"


async def test_konnectivity(konnectivity_server: KonnectivityServer, echo: int, tmp_path: Path) -> None:
    async with egress_to(GRPC, unix(tmp_path / "s")) as (egress, connect):
        assert await echoed(connect, echo, DATA) == DATA
        with trio.fail_after(20):
            await konnectivity_server.closed.wait()
            while egress.metrics.tunnels.total():
                await trio.testing.wait_all_tasks_blocked()
        assert egress.metrics.packets["from_client", "DIAL_REQ"] == 1
        assert egress.metrics.packets["to_client", "CLOSE_RSP"] == 1


async def test_tls_leads_through_konnectivity(
    konnectivity_server: KonnectivityServer, nursery: trio.Nursery, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*CA("kubelets").files(tmp_path, "kubelet"))

    async def handle(stream: trio.abc.Stream) -> None:
        await stream.send_all((await stream.receive_some()).upper())

    listeners = await nursery.start(trio.serve_ssl_over_tcp, handle, 0, context)
    port = listeners[0].transport_listener.socket.getsockname()[1]
    async with egress_to(GRPC, unix(tmp_path / "s")) as (_, connect):
        stream = await dial("127.0.0.1", port, tls=ClientTls(ClientFiles()).context(), connect=connect)
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"HELLO"
        await stream.aclose()


@pytest.mark.parametrize(
    ("mode", "error", "reason"),
    [
        ("", "dial tcp: connection refused", "endpoint"),
        (CLOSED, "dial closed", "dialclosed"),
        (CUT, "Unavailable", "tunnelclosed"),
    ],
)
async def test_a_dial_fails(
    konnectivity_server: KonnectivityServer, tmp_path: Path, mode: str, error: str, reason: str
) -> None:
    konnectivity_server.mode = mode
    async with egress_to(GRPC, unix(tmp_path / "s")) as (egress, connect):
        with pytest.raises(ProxyFailed, match=error):
            await connect("127.0.0.1", 1)
        assert egress.metrics.failures == {("grpc", "uds", "proxy"): 1}
        assert egress.metrics.tunnel_failures == {(reason,): 1}
        assert not egress.metrics.tunnels.total()


REQUEST: ContextVar[object] = ContextVar("request")


async def test_a_connection_keeps_nothing_of_the_request_that_needed_it(
    konnectivity_server: KonnectivityServer, echo: int, tmp_path: Path
) -> None:
    async with egress_to(GRPC, unix(tmp_path / "s")) as (_, connect):
        request = type("Request", (), {})()
        held, token = weakref.ref(request), REQUEST.set(request)
        async with await connect("127.0.0.1", echo) as stream:
            REQUEST.reset(token)
            del request, token
            await stream.send_all(b"a")
            assert await stream.receive_some() == b"a"
            gc.collect()
            assert held() is None


async def test_a_dial_is_given_up(konnectivity_server: KonnectivityServer, tmp_path: Path) -> None:
    konnectivity_server.mode = SILENT
    async with egress_to(GRPC, unix(tmp_path / "s")) as (_, connect):
        with trio.move_on_after(0.1):
            await connect("127.0.0.1", 1)
        with trio.fail_after(20):
            await konnectivity_server.closed.wait()
        assert konnectivity_server.received[-1] == konnectivity.PacketType.DIAL_CLS


async def test_a_reader_that_takes_nothing_loses_its_connection(
    konnectivity_server: KonnectivityServer, nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(konnectivity, "READ_WAIT", 0.05)
    sent, ended = 0, trio.Event()

    async def flood(stream: trio.SocketStream) -> None:
        nonlocal sent
        try:
            while True:
                await stream.send_all(bytes(65536))
                sent += 65536
        except trio.BrokenResourceError:
            ended.set()

    listeners = await nursery.start(trio.serve_tcp, flood, 0)
    async with egress_to(GRPC, unix(tmp_path / "s")) as (egress, connect):
        async with await connect("127.0.0.1", listeners[0].socket.getsockname()[1]) as stream:
            with trio.fail_after(20):
                await ended.wait()
                while await stream.receive_some():
                    pass
        assert sent < 16 << 20  # buffers of the kernel; nothing else grows
        assert not egress.metrics.tunnels.total()


async def test_the_end_of_a_proxy_ends_its_connections(nursery: trio.Nursery, echo: int, tmp_path: Path) -> None:
    server = KonnectivityServer()
    async with trio.open_nursery() as proxies:
        await serve_unix(proxies, str(tmp_path / "s"), server.handle)
        async with egress_to(GRPC, unix(tmp_path / "s")) as (_, connect):
            stream = await connect("127.0.0.1", echo)
            await stream.send_all(b"x")
            assert await stream.receive_some() == b"x"
            proxies.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(20):
                assert await stream.receive_some() == b""
                await stream.aclose()


async def test_no_connection_before_the_start(tmp_path: Path, konnectivity_server: KonnectivityServer) -> None:
    connection = EgressConnection(proxy_protocol=GRPC, transport=unix(tmp_path / "s"))
    egress = Egress([EgressSelection(name="cluster", connection=connection)])
    with pytest.raises(ProxyFailed, match="starts or stops"):
        await egress.networks.connect_to(Network.CLUSTER)("127.0.0.1", 1)
