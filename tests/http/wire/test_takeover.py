"""Takeover of a connection by a handler: SPDY, WebSocket and other upgrades as raw bytes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kubechronicle.http.messages import SWITCHED, ClientDisconnected, Request, Response

SPDY = b"POST /exec HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


async def echo(request: Request) -> Response:
    """Echo bytes until the client's end, then say bye."""
    assert request.upgrade is not None
    stream = await request.upgrade.accept([("x-stream-protocol-version", "v4")])
    async with stream:
        async for data in stream:
            await stream.send_all(data)
        await stream.send_all(b"bye")
    return SWITCHED


async def head_of(stream: Any) -> tuple[bytes, bytes]:
    received = b""
    with trio.fail_after(60):
        while b"\r\n\r\n" not in received:
            more = await stream.receive_some()
            assert more
            received += more
    head, _, rest = received.partition(b"\r\n\r\n")
    return bytes(head), bytes(rest)


async def exactly(stream: Any, rest: bytes, size: int) -> bytes:
    received = bytearray(rest)
    with trio.fail_after(60):
        while len(received) < size:
            more = await stream.receive_some()
            assert more
            received += more
    return bytes(received)


@pytest.mark.parametrize("request_head", [SPDY, WEBSOCKET], ids=["spdy", "websocket"])
async def test_raw_bytes_both_ways_with_early_ones_first(wire: Any, request_head: bytes) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(request_head + b"early ")
    head, rest = await head_of(stream)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"x-stream-protocol-version: v4" in head
    assert await exactly(stream, rest, 6) == b"early "
    data = b"0123456789" * 200_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        assert await exactly(stream, b"", len(data)) == data
    await stream.aclose()
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_a_refused_upgrade_is_an_ordinary_answer_and_the_connection_goes_on(wire: Any) -> None:
    async def refuse(request: Request) -> Response:
        return Response(403, [], b"no") if request.upgrade is not None else Response(200, [], b"yes")

    served = await wire(refuse)
    stream = await served.connect()
    await stream.send_all(SPDY + b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
    with trio.fail_after(60):
        received = b""
        while not received.endswith(b"yes"):
            received += await stream.receive_some()
    assert received.startswith(b"HTTP/1.1 403 ")
    assert b"no" + b"HTTP/1.1 200 OK" in received


@pytest.mark.parametrize("request_head", [SPDY, WEBSOCKET], ids=["spdy", "websocket"])
async def test_an_error_after_the_takeover_ends_the_connection(wire: Any, request_head: bytes) -> None:
    async def broken(request: Request) -> Response:
        assert request.upgrade is not None
        await request.upgrade.accept()
        raise RuntimeError("bug")

    served = await wire(broken)
    stream = await served.connect()
    await stream.send_all(request_head)
    head, rest = await head_of(stream)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert await served.rest(stream) == b""
    assert rest == b""
    assert served.server.statistics().running_requests == 0


async def test_the_reaper_leaves_a_taken_connection_alone(wire: Any) -> None:
    """Neither the bounds of idle connections nor that of slow clients apply."""
    served = await wire(echo, idle=0.05, header_wait=0.05, send_wait=0.05, reap_interval=0.01)
    stream = await served.connect()
    await stream.send_all(SPDY)
    _, rest = await head_of(stream)
    size = 8 * 1024 * 1024
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"x" * size)
        await trio.sleep(0.3)  # longer than all bounds, while the server's sends are blocked
        assert len(await exactly(stream, rest, size)) == size
    assert served.server.statistics().timed_out == 0


async def test_a_client_that_vanishes_ends_the_handler(wire: Any) -> None:
    ended = trio.Event()

    async def app(request: Request) -> Response:
        if request.upgrade is not None:
            stream = await request.upgrade.accept()
            try:
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass
            ended.set()
        return SWITCHED

    served = await wire(app)
    stream = await served.connect()
    await stream.send_all(SPDY)
    await head_of(stream)
    await stream.aclose()
    with trio.fail_after(60):
        await ended.wait()


async def test_a_client_that_vanishes_before_the_takeover(wire: Any) -> None:
    begun, outcome = trio.Event(), trio.Event()

    async def app(request: Request) -> Response:
        begun.set()
        await request.wait_disconnect()
        assert request.upgrade is not None
        try:
            await request.upgrade.accept()
        except ClientDisconnected:
            outcome.set()
            raise
        return SWITCHED

    served = await wire(app)
    stream = await served.connect()
    await stream.send_all(SPDY)
    with trio.fail_after(60):
        await begun.wait()
        await stream.aclose()
        await outcome.wait()
    assert served.server.statistics().guarded_errors == 0


async def test_drain_cuts_after_the_grace_period(wire: Any) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(SPDY)
    await head_of(stream)
    with trio.fail_after(60):
        await served.server.drain(0.2)
    assert served.server.statistics().open_connections == 0
