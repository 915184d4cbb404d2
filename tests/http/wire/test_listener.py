"""Accepting: addresses, the bound on connections, the cost of idle ones, counters, the guard's log."""

from __future__ import annotations

import gc
import logging
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.wire.connection import Connection
from kubechronicle.http.wire.http1 import Http1Protocol
from kubechronicle.http.wire.listener import serve
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.http.wire.sockets import bind, socket_address
from kubechronicle.http.wire.tls import TLSStream

IDLE_CONNECTIONS = 500
IDLE_COST = 160 * 1024
"""Bytes of resident memory an idle TLS connection may cost; OpenSSL's buffers make up most of it."""


async def hello(request: Request) -> Response:
    return Response(200, [], b"hello")


async def test_every_address_of_a_name_on_one_port() -> None:
    sockets = await bind("", 0)
    try:
        ports = {sock.getsockname()[1] for sock in sockets}
        assert len(ports) == 1
        assert 0 not in ports
        assert any(sock.family == socket.AF_INET for sock in sockets)
    finally:
        for sock in sockets:
            sock.close()


async def test_a_taken_port_raises(server_files: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ServeConfig(
            port=taken.getsockname()[1], tls_cert_file=str(server_files[0]), tls_private_key_file=str(server_files[1])
        )
        with pytest.raises(OSError, match="in use"):
            await serve(hello, config)


async def test_a_missing_file_raises(tmp_path: Path) -> None:
    config = ServeConfig(tls_cert_file=str(tmp_path / "none"), tls_private_key_file=str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        await serve(hello, config)


async def test_serve_returns_after_drain_and_frees_the_port(server_files: tuple[Path, Path]) -> None:
    config = ServeConfig(tls_cert_file=str(server_files[0]), tls_private_key_file=str(server_files[1]))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, hello, config))
            await server.drain(1)
            await server.drain(1)
        (again,) = await bind("127.0.0.1", server.port)
        again.close()


def test_addresses_in_their_own_notation() -> None:
    assert socket_address(("::ffff:10.0.0.1", 5, 0, 0)) == ("10.0.0.1", 5)
    assert socket_address(("::1", 5, 0, 0)) == ("::1", 5)
    assert socket_address(("10.0.0.1", 5)) == ("10.0.0.1", 5)


async def test_connections_beyond_the_limit_wait(wire: Any) -> None:
    served = await wire(hello, connections=2)
    first, second = await served.http1(), await served.http1()
    assert (await first.ask("GET", "/")).status == 200
    answered = trio.Event()

    async def third() -> None:
        client = await served.http1()
        assert (await client.ask("GET", "/")).status == 200
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(third)
        await trio.testing.wait_all_tasks_blocked()
        assert not answered.is_set()
        assert served.server.statistics().open_connections == 2
        await second.stream.aclose()
        with trio.fail_after(60):
            await answered.wait()


async def test_counters(wire: Any) -> None:
    served = await wire(hello)
    client = await served.http1()
    await client.ask("GET", "/")
    await client.ask("GET", "/")
    found = served.server.statistics()
    assert (found.open_connections, found.accepted, found.requests, found.running_requests) == (1, 1, 2, 0)


async def test_errors_are_logged_once_for_each_kind(wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Request) -> Response:
        if request.path == "/key":
            raise KeyError("a")
        raise RuntimeError("a")

    served = await wire(broken)
    client = await served.http1()
    with caplog.at_level(logging.ERROR):
        for path in ("/", "/", "/key", "/key", "/"):
            assert (await client.ask("GET", path)).status == 500
    assert served.server.statistics().guarded_errors == 5
    assert len(caplog.records) == 2


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
async def test_idle_connections_cost_little_and_are_freed(wire: Any) -> None:
    """Both ends are in this process, so the measured cost is that of server and client together."""
    served = await wire(hello)
    warm = await served.http1()
    await warm.ask("GET", "/")
    context = served.context()

    async def connect_all() -> list[Any]:
        streams = []
        for _ in range(IDLE_CONNECTIONS):
            tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
            stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
            await stream.do_handshake()
            streams.append(stream)
        return streams

    async def close_all(streams: list[Any]) -> None:
        for stream in streams:
            await stream.aclose()
        with trio.fail_after(60):
            while served.server.statistics().open_connections > 1:
                await trio.testing.wait_all_tasks_blocked(0.005)

    before = resident()
    streams = await connect_all()
    with trio.fail_after(60):
        while served.server.statistics().open_connections < IDLE_CONNECTIONS + 1:
            await trio.testing.wait_all_tasks_blocked(0.005)
    first = resident()
    assert (first - before) / IDLE_CONNECTIONS < IDLE_COST
    assert (await warm.ask("GET", "/")).status == 200
    await close_all(streams)
    gc.collect()
    kept = [found for found in gc.get_objects() if type(found) in (Connection, TLSStream, Http1Protocol)]
    assert len(kept) < IDLE_CONNECTIONS // 10  # the first one, and a few to which a stack frame may refer
