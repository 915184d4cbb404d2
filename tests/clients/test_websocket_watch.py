"""A watch over WebSocket, as from browsers and some client libraries: trio-websocket against the real server."""

from __future__ import annotations

import json

import pytest
import trio
from harness import Server, configmap, unique
from trio_websocket import ConnectionClosed, open_websocket

NAMESPACE = "websocket-watch"


async def test_events_arrive_as_messages(server: Server) -> None:
    api = server.api()
    base = f"/api/v1/namespaces/{NAMESPACE}"
    api.namespace(NAMESPACE)
    first, second = unique("a"), unique("b")
    api.create(f"{base}/configmaps", configmap(first, x="1"))
    resource = f"{base}/configmaps?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt"
    with trio.fail_after(60):
        async with open_websocket("127.0.0.1", server.port, resource, use_ssl=server.client_context()) as socket:
            event = json.loads(await socket.get_message())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", first)
            await trio.to_thread.run_sync(lambda: server.api().create(f"{base}/configmaps", configmap(second)))
            event = json.loads(await socket.get_message())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", second)


async def test_the_server_closes_when_the_watch_is_over(server: Server) -> None:
    base = f"/api/v1/namespaces/{NAMESPACE}"
    server.api().namespace(NAMESPACE)
    resource = f"{base}/secrets?watch=1&timeoutSeconds=1"
    with trio.fail_after(60):
        async with open_websocket("127.0.0.1", server.port, resource, use_ssl=server.client_context()) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await socket.get_message()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1000
