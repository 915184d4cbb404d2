"""componentstatuses: answers of components that are there, fail, or are not there."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

import pytest
import trio
from certificates import CA
from in_process import open_server

from kubechronicle.http.handlers import machine

PATH = "/api/v1/componentstatuses"


async def component(nursery: trio.Nursery, folder: Path, answer: bytes) -> int:
    """Serve one answer to all requests, over TLS. Return the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*CA("components").files(folder, "component"))

    async def handle(stream: trio.abc.Stream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, handle, 0, context, host="127.0.0.1"))
    return int(listeners[0].transport_listener.socket.getsockname()[1])


async def test_components_are_asked(nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = await component(nursery, tmp_path, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    failing = await component(nursery, tmp_path, b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno")
    monkeypatch.setattr(machine, "PORTS", {"controller-manager": failing, "scheduler": healthy})
    async with open_server() as server:
        items = (await server.get(PATH))["items"]
        assert {item["metadata"]["name"]: item["conditions"] for item in items} == {
            "controller-manager": [
                {"type": "Healthy", "status": "False", "message": "HTTP probe failed with statuscode: 500"}
            ],
            "etcd-0": [{"type": "Healthy", "status": "True", "message": "ok"}],
            "scheduler": [{"type": "Healthy", "status": "True", "message": "ok"}],
        }
        chosen = (await server.get(f"{PATH}?fieldSelector=metadata.name%3Dscheduler"))["items"]
        assert [item["metadata"]["name"] for item in chosen] == ["scheduler"]
        assert (await server.get(f"{PATH}?labelSelector=a"))["items"] == []
        assert (await server.get(f"{PATH}/scheduler"))["conditions"][0]["status"] == "True"
        assert (await server.ask("GET", f"{PATH}/nope")).status == 404
        assert (await server.ask("GET", f"{PATH}?watch=1")).status == 405


async def test_a_component_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PORTS", {"scheduler": 1})
    async with open_server() as server:
        (condition,) = (await server.get(f"{PATH}/scheduler"))["conditions"]
        assert condition == {
            "type": "Healthy",
            "status": "False",
            "message": 'Get "https://127.0.0.1:1/healthz": dial tcp 127.0.0.1:1: connect: connection refused',
        }
