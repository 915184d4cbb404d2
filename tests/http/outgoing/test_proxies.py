"""Requests without TLS, and through HTTP proxies with and without TLS, of which some ask for a password."""

from __future__ import annotations

import base64
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.pools import MAX_ORIGINS
from kubechronicle.http.outgoing.remote_server import RemoteServer
from tests.http.proxying.proxies import ConnectProxy

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
PASSWORD = "Basic " + base64.b64encode(b"me:se cret").decode()


class PlainServer:
    """An HTTP server of one answer. ``heads``: of the requests. ``connections``: their number."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.connections = 0

    async def handle(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        async with stream:
            while data := await stream.receive_some():
                self.heads.append(data)
                await stream.send_all(OK)

    async def serve(self, nursery: trio.Nursery, tls: ssl.SSLContext | None = None) -> int:
        serve = trio.serve_tcp if tls is None else partial(trio.serve_ssl_over_tcp, ssl_context=tls)
        listeners = await nursery.start(partial(serve, self.handle, 0, host="127.0.0.1"))
        return int(getattr(listeners[0], "transport_listener", listeners[0]).socket.getsockname()[1])


@pytest.fixture
def server_context(server_files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*server_files)
    return context


async def test_requests_without_tls_share_a_connection(nursery: trio.Nursery, outgoing: Outgoing) -> None:
    server = PlainServer()
    port = await server.serve(nursery)
    client = outgoing.client(RemoteServer(url=f"http://localhost:{port}/a b?c=ü#d", http_allowed=True))
    for _ in range(2):
        assert (await client.ask(body=b"{}")).body == b"{}"
    assert server.connections == 1
    assert server.heads[0].startswith(b"POST /a%20b?c=%C3%BC HTTP/1.1\r\nhost: localhost:")
    assert server.heads[0].endswith(b"content-length: 2\r\n\r\n{}")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_proxy_sends_requests_without_tls_on(
    nursery: trio.Nursery, outgoing: Outgoing, authority: Any, server_context: ssl.SSLContext, *, secure: bool
) -> None:
    proxy = PlainServer()
    port = await proxy.serve(nursery, server_context if secure else None)
    url = f"http{'s' * secure}://me:se%20cret@localhost:{port}"
    peer = RemoteServer(url="http://hook.example.com/a", http_allowed=True, proxy_url=url, ca=authority.file)
    assert (await outgoing.client(peer).ask(body=b"{}")).status == 200
    head = proxy.heads[0].decode()
    assert head.startswith("POST http://hook.example.com/a HTTP/1.1\r\nhost: hook.example.com\r\n")
    assert f"proxy-authorization: {PASSWORD}\r\n" in head


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_proxy_connects_to_servers_with_tls(
    wire: Any,
    nursery: trio.Nursery,
    outgoing: Outgoing,
    authority: Any,
    server_context: ssl.SSLContext,
    *,
    secure: bool,
) -> None:
    async def answer(request: Request) -> Response:
        return Response(200, [], await request.body(1 << 20))

    proxy = ConnectProxy()
    port = await proxy.serve_tcp(nursery, server_context if secure else None)
    url = f"http{'s' * secure}://me:se%20cret@localhost:{port}"
    served = (await wire(answer)).server
    client = outgoing.client(
        RemoteServer(url=f"https://localhost:{served.port}", ca=authority.file, proxy_url=url), max_answer=1 << 20
    )
    large = b"x" * 1_000_000
    assert [(await client.ask(body=body)).body for body in (b"{}", large)] == [b"{}", large]
    assert len(proxy.asked) == 1
    assert f"Proxy-Authorization: {PASSWORD}\r\n".encode() in proxy.asked[0]


async def test_an_untrusted_proxy_gets_no_request(
    nursery: trio.Nursery, outgoing: Outgoing, server_context: ssl.SSLContext
) -> None:
    proxy = ConnectProxy()
    port = await proxy.serve_tcp(nursery, server_context)
    client = outgoing.client(RemoteServer(url="https://hook.example.com", proxy_url=f"https://localhost:{port}"))
    with pytest.raises(AskError, match="certificate verify failed"):
        await client.ask()
    assert not proxy.asked


async def test_connections_to_other_origins_are_bounded(wire: Any, nursery: trio.Nursery, outgoing: Outgoing) -> None:
    async def answer(request: Request) -> Response:
        return Response(200, [], b"{}")

    servers = [await wire(answer) for _ in range(MAX_ORIGINS + 2)]
    urls = [f"https://localhost:{each.server.port}/" for each in servers]
    client = outgoing.client(RemoteServer(url=urls[0], ca=servers[0].authority.file))
    for url in urls:
        assert (await client.ask("GET", url)).status == 200
    with trio.fail_after(60):
        while servers[1].server.statistics().open_connections:
            await trio.lowlevel.checkpoint()
    assert all(each.server.statistics().open_connections for each in (servers[0], *servers[2:]))
    with pytest.raises(AskError, match=r"Port out of range|invalid"):
        await client.ask("GET", "https://localhost:99999/")
