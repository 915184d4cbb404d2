"""WebSocket over TLS: with trio-websocket as the client, and by hand for clients that misbehave."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
import trio_websocket
import wsproto.events
from wsproto.connection import Connection, ConnectionType

from kubechronicle.api.errors.status import StatusError
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.streaming.websocket import (
    BINARY,
    TEXT,
    WebSocketSession,
    accept,
    handshake,
    message,
    send_stream,
)

PROTOCOL = "base64.binary.k8s.io"


async def accepted(request: Request) -> WebSocketSession:
    return WebSocketSession(await accept(request, handshake(request), next(iter(request.subprotocols), None)))


async def echo(request: Request) -> Response:
    if not request.is_websocket:
        return Response(400, [], b"a WebSocket is wanted")
    try:
        session = await accepted(request)
    except StatusError as error:
        return Response(error.code)
    content = b""
    async for parts in session.receive():
        for part in parts:
            content = part.data if part.first else content + part.data
            if part.last:
                await session.send_frames(message(TEXT if part.text else BINARY, content))
    await session.close()
    return SWITCHED


def opened(served: Any, path: str = "/", **options: Any) -> Any:
    return trio_websocket.open_websocket("localhost", served.server.port, path, use_ssl=served.context(), **options)


async def test_echo_with_subprotocol(wire: Any) -> None:
    served = await wire(echo)
    with trio.fail_after(60):
        async with opened(served, subprotocols=["unknown", PROTOCOL]) as client:
            assert client.subprotocol == "unknown"
            for message in ("text", b"bytes", "ümläut", b"x" * 100_000, ""):
                await client.send_message(message)
                assert await client.get_message() == message
            await client.ping(b"payload")
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_rejected_with_an_answer(wire: Any) -> None:
    async def refuse(request: Request) -> Response:
        assert request.is_websocket
        return Response(403, [("content-type", "application/json")], b'{"kind":"Status"}')

    served = await wire(refuse)
    with pytest.raises(trio_websocket.ConnectionRejected) as caught:
        await trio_websocket_handshake(served)
    assert (caught.value.status_code, caught.value.body) == (403, b'{"kind":"Status"}')
    await served.check_alive()


async def trio_websocket_handshake(served: Any, path: str = "/") -> None:
    with trio.fail_after(60):
        async with opened(served, path):
            pass


async def test_application_error_before_and_after_accept(wire: Any) -> None:
    async def broken(request: Request) -> Response:
        if request.path == "/after":
            await send_stream(request, None, failing(), text=True)
        raise RuntimeError("bug")

    async def failing() -> AsyncIterator[bytes]:
        raise RuntimeError("bug")
        yield b""

    served = await wire(broken)
    with pytest.raises(trio_websocket.ConnectionRejected) as caught:
        await trio_websocket_handshake(served, "/before")
    assert caught.value.status_code == 500
    with trio.fail_after(60):
        async with opened(served, "/after") as client:
            with pytest.raises(trio_websocket.ConnectionClosed) as closed:
                await client.get_message()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1011
    await served.check_alive()


class Watch:
    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[bytes](0)
        self.ended = trio.Event()

    async def app(self, request: Request) -> Response:
        await send_stream(request, None, self.chunks(), text=True)
        return SWITCHED

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.receive:
                yield chunk
        finally:
            self.ended.set()


async def test_watch_until_the_server_ends_it(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    with trio.fail_after(60):
        async with opened(served) as client:
            await client.send_message("ignored")
            await watch.send.send(b'{"type":"ADDED"}')
            assert await client.get_message() == '{"type":"ADDED"}'
            await watch.send.aclose()
            with pytest.raises(trio_websocket.ConnectionClosed) as closed:
                await client.get_message()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1000
    assert watch.ended.is_set()


@pytest.mark.parametrize("way", ["closing handshake", "vanish"])
async def test_watch_until_the_client_leaves(wire: Any, way: str) -> None:
    watch = Watch()
    served = await wire(watch.app)
    with trio.fail_after(60):
        if way == "vanish":
            client = await shaken(served)
            await client.stream.aclose()
        else:
            async with opened(served):
                pass
        await watch.ended.wait()
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


# --- by hand ---

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef") + b"\r\n"
)


class Raw:
    """The client's side of an open conversation, frame by frame."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.protocol = Connection(ConnectionType.CLIENT)

    async def send(self, event: wsproto.events.Event) -> None:
        await self.stream.send_all(self.protocol.send(event))

    async def receive(self) -> list[wsproto.events.Event]:
        self.protocol.receive_data(bytes(await self.stream.receive_some()) or None)
        return list(self.protocol.events())


async def shaken(served: Any, extra: bytes = b"", trailing: bytes = b"") -> Raw:
    stream = await served.connect()
    await stream.send_all(HANDSHAKE + extra + b"\r\n" + trailing)
    received = b""
    with trio.fail_after(60):
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
    head, _, rest = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    client = Raw(stream)
    if rest:
        client.protocol.receive_data(rest)
    return client


async def test_bytes_sent_before_the_answer_are_kept(wire: Any) -> None:
    """Bytes right after an upgrade must neither break the server nor be lost."""
    served = await wire(echo)
    early = Connection(ConnectionType.CLIENT).send(wsproto.events.TextMessage(data="early"))
    client = await shaken(served, trailing=early)
    events = list(client.protocol.events()) or await client.receive()
    assert [event.data for event in events if isinstance(event, wsproto.events.TextMessage)] == ["early"]
    await served.check_alive()


async def test_garbage_after_the_handshake(wire: Any) -> None:
    served = await wire(echo)
    client = await shaken(served, trailing=b"\xff\xff\xff\xff garbage, and more")
    await served.rest(client.stream)
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_broken_frames_close_with_1002(wire: Any) -> None:
    served = await wire(echo)
    client = await shaken(served)
    await client.stream.send_all(b"\x83\x80\0\0\0\0")  # an opcode that does not exist
    with trio.fail_after(60):
        events = await client.receive()
    assert isinstance(events[-1], wsproto.events.CloseConnection)
    assert events[-1].code == 1002
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_unmasked_and_invalid_text_frames(wire: Any) -> None:
    served = await wire(echo)
    for frames in (b"\x81\x01a", b"\x81\x81\0\0\0\0\xff", b"\x88\x81\0\0\0\0a"):
        client = await shaken(served)
        await client.stream.send_all(frames)
        await served.rest(client.stream)
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


@pytest.mark.parametrize("size", [2, 125, 126, 65_535, 65_536, 300_000])
async def test_messages_of_any_size_come_back(wire: Any, size: int) -> None:
    served = await wire(echo)
    with trio.fail_after(60):
        async with opened(served, max_message_size=1 << 20) as client:
            await client.send_message(b"x" * size)
            assert await client.get_message() == b"x" * size


async def test_both_sides_close_at_once(wire: Any) -> None:
    """Our close frame crosses the client's, and data after that."""
    closing = trio.Event()

    async def app(request: Request) -> Response:
        session = await accepted(request)
        await closing.wait()
        await session.close(1001, "going")
        return SWITCHED

    served = await wire(app)
    for _ in range(5):
        client = await shaken(served)
        closing.set()
        with contextlib.suppress(trio.BrokenResourceError):
            await client.send(wsproto.events.CloseConnection(code=1000))
            await client.stream.send_all(b"\x81\x80\0\0\0\0" * 3)
        await served.rest(client.stream)
    await served.check_alive()
    assert served.server.statistics().guarded_errors == 0


async def test_compression_is_not_negotiated(wire: Any) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(HANDSHAKE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
    assert b"extensions" not in bytes(await stream.receive_some()).lower()


@pytest.mark.parametrize(
    "head",
    [
        HANDSHAKE.replace(b"Version: 13", b"Version: 8"),
        HANDSHAKE.partition(b"Sec-WebSocket-Key")[0],
    ],
    ids=["old version", "no key"],
)
async def test_bad_handshake_is_400(wire: Any, head: bytes) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(head + b"\r\n")
    with trio.fail_after(60):
        assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 400 ")
    await served.check_alive()


async def test_unreceived_messages_stop_the_reading(wire: Any) -> None:
    async def app(request: Request) -> Response:
        await accepted(request)
        await trio.sleep_forever()
        return SWITCHED

    served = await wire(app)
    client = await shaken(served)
    message = wsproto.events.BytesMessage(data=b"x" * 60_000)
    with trio.move_on_after(0.3) as scope:  # the blocked sender is the expected result
        while True:
            await client.send(message)
    assert scope.cancelled_caught
    await served.check_alive()


async def test_drain_ends_conversations(wire: Any) -> None:
    async def app(request: Request) -> Response:
        session = await accepted(request)
        await request.draining.wait()
        await session.close()
        return SWITCHED

    served = await wire(app)
    with trio.fail_after(60):
        async with opened(served) as client, trio.open_nursery() as nursery:
            nursery.start_soon(served.server.drain, 5)
            with pytest.raises(trio_websocket.ConnectionClosed):
                await client.get_message()
    assert served.server.statistics().open_connections == 0
