"""Requests of this server to others through a proxy: kept connections, and those to other origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from tests.http.proxying.proxies import ConnectProxy, serve_unix
from tests.http.proxying.test_egress import HTTP, egress_to, unix


async def answer(request: Request) -> Response:
    return Response(200, [("content-type", "text/plain")], request.path.encode() + await request.body(100))


@pytest.fixture
async def proxy(nursery: trio.Nursery, tmp_path: Path) -> ConnectProxy:
    proxy = ConnectProxy()
    await serve_unix(nursery, str(tmp_path / "s"), proxy.handle)
    return proxy


async def test_requests_of_every_kind_lead_through_the_proxy(
    wire: Any, nursery: trio.Nursery, proxy: ConnectProxy, tmp_path: Path
) -> None:
    one, other = await wire(answer), await wire(answer)
    async with egress_to(HTTP, unix(tmp_path / "s")) as (egress, _):
        outgoing = Outgoing(networks=egress.networks)
        await nursery.start(outgoing.run)
        peer = RemoteServer(url=f"https://localhost:{one.server.port}/a", ca=one.authority.file)
        client = outgoing.client(peer, network=Network.CLUSTER)
        assert (await client.ask(body=b"x")).body == b"/ax"
        assert (await client.ask("GET", "/b")).body == b"/b"
        assert len(proxy.asked) == 1  # the connection is kept
        elsewhere = f"https://localhost:{other.server.port}/c"  # another origin, as of an identity provider's keys
        assert (await client.ask("GET", elsewhere)).body == b"/c"
        assert [each.split()[1] for each in proxy.asked[:2]] == [
            b"localhost:%d" % port for port in (one.server.port, other.server.port)
        ]
        direct = outgoing.client(peer)
        before = len(proxy.asked)
        assert (await direct.ask("GET", "/e")).body == b"/e"
        assert len(proxy.asked) == before


async def test_a_refusal_of_the_proxy_is_the_whole_error(
    nursery: trio.Nursery, proxy: ConnectProxy, tmp_path: Path
) -> None:
    proxy.answer = b"HTTP/1.1 403 Forbidden\r\n\r\n"
    async with egress_to(HTTP, unix(tmp_path / "s")) as (egress, _):
        outgoing = Outgoing(networks=egress.networks)
        await nursery.start(outgoing.run)
        client = outgoing.client(RemoteServer(url="https://hook.example.com/a"), network=Network.CLUSTER)
        with pytest.raises(AskError) as raised:
            await client.ask()
        path = tmp_path / "s"
        wanted = f"proxy error from {path} while dialing hook.example.com:443, code 403: 403 Forbidden"
        assert raised.value.why == wanted
        assert str(raised.value) == f'Post "https://hook.example.com/a": {wanted}'
        assert len(proxy.asked) == 1  # it is not asked twice
