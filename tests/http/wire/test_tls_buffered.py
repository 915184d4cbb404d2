"""TLS of outgoing connections: the same behaviour as that of accepted ones, with fewer reads."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kubechronicle.http.wire.tls import TLSStream
from tests.support.certificates import CA

DATA = bytes(range(256)) * 20_000


def contexts(folder: Path, version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    certificate, key = CA("buffered").files(folder, "server", usage=None)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key)
    server.maximum_version = version
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client


@asynccontextmanager
async def connected(folder: Path, version: ssl.TLSVersion) -> AsyncIterator[tuple[TLSStream, TLSStream]]:
    """Yield the client and the server of a connection."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    for_server, for_client = contexts(folder, version)
    client, server = TLSStream.wrap_client(near, for_client, "server"), TLSStream.wrap(far, for_server)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.do_handshake()
        yield client, server
    client.close_nowait()
    server.close_nowait()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[TLSStream, TLSStream]]:
    async with connected(tmp_path, request.param) as streams:
        yield streams


async def received(stream: TLSStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_many(256 * 1024)
        assert more
        data += more
    return data


async def test_both_directions_at_once(both: tuple[TLSStream, TLSStream]) -> None:
    """More than the buffers of the sockets hold, so that sends wait, and are repeated."""
    client, server = both
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, DATA)
        nursery.start_soon(server.send_all, DATA)
        assert await received(client, len(DATA)) == DATA
        assert await received(server, len(DATA)) == DATA


async def test_small_records_are_received_together(both: tuple[TLSStream, TLSStream]) -> None:
    client, server = both
    for number in range(100):
        await server.send_all(b"%d," % number)
    assert await client.receive_many(256 * 1024) == b"".join(b"%d," % number for number in range(100))
    await server.send_all(b"abc")
    assert await client.receive_some(1) == b"a"
    assert await client.receive_some() == b"bc"
    assert client.receive_nowait() is None


async def test_our_direction_ends_and_the_peers_goes_on(both: tuple[TLSStream, TLSStream]) -> None:
    client, server = both
    await client.send_all(b"last")
    client.send_eof_nowait(half=True)
    assert await received(server, 4) == b"last"
    assert await server.receive_some() == b""
    await server.send_all(b"after")
    assert await client.receive_some() == b"after"


@pytest.mark.parametrize("how", ["close_notify", "closed", "reset"])
async def test_the_peers_end(both: tuple[TLSStream, TLSStream], how: str) -> None:
    client, server = both
    await server.send_all(b"last")
    if how == "close_notify":
        server.send_eof_nowait()
    elif how == "closed":
        server._socket.close()
    else:
        server.abort()
    assert await received(client, 4) == b"last"
    assert await client.receive_some() == b""
    assert client.peer_left()


async def test_a_closed_stream_says_so(both: tuple[TLSStream, TLSStream]) -> None:
    client, _ = both
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await client.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        client.close_nowait()
    with pytest.raises(trio.ClosedResourceError):
        await client.send_all(b"x")


async def test_a_peer_without_tls(tmp_path: Path) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    client = TLSStream.wrap_client(near, contexts(tmp_path, ssl.TLSVersion.TLSv1_3)[1], "server")
    with pytest.raises(trio.BrokenResourceError, match="WRONG_VERSION_NUMBER"):
        await client.do_handshake()
    client.close_nowait()
    far.close()
