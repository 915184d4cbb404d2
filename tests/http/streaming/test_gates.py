"""The gates of WebSockets in sessions: which requests reach the kubelet as they are, and which are translated."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from certificates import CA
from in_process import PODS, open_server, pod

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.http.messages import HeaderList

COMMANDS, FORWARDS = "TranslateStreamCloseWebsocketRequests", "PortForwardWebsockets"
KUBELETS = "ExtendWebSocketsToKubelet"
PASSED, TRANSLATED = ("GET", "websocket"), ("POST", "SPDY/3.1")
OFFERS = {"exec": "v5.channel.k8s.io", "attach": "v5.channel.k8s.io", "portforward": "SPDY/3.1+portforward.k8s.io"}
COUNTED = "apiserver_websocket_streaming_requests_total"


class WebSocketUpgrade:
    """The upgrade of a client that asks for a WebSocket."""

    protocol = "websocket"

    def __init__(self) -> None:
        self.client, self._server = trio.testing.memory_stream_pair()

    async def accept(self, headers: HeaderList = ()) -> trio.abc.HalfCloseableStream:
        return self._server

    async def take_over(self) -> trio.abc.HalfCloseableStream:
        return self._server


async def refusing_kubelet(nursery: trio.Nursery, folder: Path, sent: trio.MemorySendChannel[tuple[str, str]]) -> int:
    """Serve a kubelet that sends on method and upgrade of each request, and refuses it. Return the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*CA("kubelets").files(folder, "kubelet"))

    async def handle(stream: trio.abc.Stream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive_some()
            line, *fields = head.decode().split("\r\n")
            upgrade = next(each.split(": ")[1] for each in fields if each.lower().startswith("upgrade: "))
            await sent.send((line.split()[0], upgrade))
            await stream.send_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")

    listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, handle, 0, context, host="127.0.0.1"))
    return int(listeners[0].transport_listener.socket.getsockname()[1])


@pytest.mark.parametrize(
    ("subresource", "gates", "understands", "request_of", "counted"),
    [
        ("exec", {}, False, TRANSLATED, "translated_at_apiserver"),
        ("exec", {}, True, PASSED, "proxied_to_kubelet"),
        ("exec", {KUBELETS: False}, True, TRANSLATED, "translated_at_apiserver"),
        ("exec", {COMMANDS: False}, False, PASSED, ""),
        ("exec", {COMMANDS: False}, True, PASSED, ""),
        ("attach", {COMMANDS: False}, False, PASSED, ""),
        ("attach", {FORWARDS: False}, False, TRANSLATED, "translated_at_apiserver"),
        ("portforward", {}, False, TRANSLATED, "translated_at_apiserver"),
        ("portforward", {}, True, PASSED, "proxied_to_kubelet"),
        ("portforward", {KUBELETS: False}, True, TRANSLATED, "translated_at_apiserver"),
        ("portforward", {FORWARDS: False}, False, PASSED, ""),
        ("portforward", {COMMANDS: False}, False, TRANSLATED, "translated_at_apiserver"),
    ],
)
async def test_who_understands_websockets(
    nursery: trio.Nursery,
    tmp_path: Path,
    subresource: str,
    gates: Mapping[str, bool],
    understands: bool,
    request_of: tuple[str, str],
    counted: str,
) -> None:
    sent, seen = trio.open_memory_channel[tuple[str, str]](10)
    port = await refusing_kubelet(nursery, tmp_path, sent)
    async with open_server(features=FeatureGates(given=gates)) as server:
        await server.post("/api/v1/nodes", {"metadata": {"name": "n"}})
        status: dict[str, Any] = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": [KUBELETS] if understands else [],
        }
        await server.patch("/api/v1/nodes/n/status", {"status": status})
        await server.post(PODS, pod("a", node="n"))
        query = "ports=80" if subresource == "portforward" else "command=ls&stdout=1"
        request = server.request(
            "GET",
            f"{PODS}/a/{subresource}?{query}",
            headers={
                "connection": "Upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-key": "MDEyMzQ1Njc4OWFiY2RlZg==",
                "sec-websocket-protocol": OFFERS[subresource],
            },
        )
        request.upgrade = WebSocketUpgrade()
        with trio.fail_after(60):
            async with trio.open_nursery() as session:
                session.start_soon(server.assembly.application.application, request)
                assert await seen.receive() == request_of
                session.cancel_scope.cancel()
        metrics = (await server.ask("GET", "/metrics")).body.decode()
        found = [line for line in metrics.splitlines() if line.startswith(COUNTED)]
        label = f'{COUNTED}{{proxy_type="{counted}",subresource="{subresource}"}} 1'
        assert found == ([label] if counted else [])
