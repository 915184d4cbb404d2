"""Bytes that are much work: whatever one connection sends, no pass of the event loop computes for long.

The attacker is a thread with a plain socket. The longest pass is measured in CPU time of the loop's thread, so it does
not depend on the machine's load. Each attack took 70 ms to 4 s in one pass when frames counted as one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from time import thread_time
from typing import Any, Final

import pytest
import trio
from stalls.longest_pass import measured, on_this_machine

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.streaming.websocket import send_stream
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import Setting, frame, number_frame
from kubechronicle.http.wire.http2.headers import encode_fields

LONGEST: Final = 0.1
"""Seconds of CPU of a pass. It takes about 20 ms; a busy machine takes up to three times as long for the same."""
STREAMS: Final = range(1, 1801, 2)


async def silence() -> AsyncIterator[bytes]:
    await trio.sleep_forever()
    yield b""


async def app(request: Request) -> Response:
    if request.method == "POST":
        return Response(200, [], b"%d" % len(await request.body(1 << 22)))
    if request.is_websocket:
        await send_stream(request, None, silence(), text=True)
    return Response(200, [], b"x" * 200)


def asked(stream: int, method: bytes = b"GET", path: bytes = b"/") -> bytes:
    fields = ((b":method", method), (b":path", path), (b":scheme", b"https"), (b":authority", b"h"))
    flags = frames.END_HEADERS | (frames.END_STREAM if method == b"GET" else 0)
    return frame(frames.HEADERS, flags, stream, encode_fields(fields))


def settings(*values: tuple[int, int]) -> bytes:
    return frame(frames.SETTINGS, 0, 0, b"".join(struct.pack(">HL", *each) for each in values))


def block(stream: int, content: bytes) -> bytes:
    """Return a request whose header block has this content, in frames of the largest size."""
    return b"".join(frames.header_frames(stream, asked(stream)[9:] + content, frames.FRAME_SIZE, end=True))


WINDOW: Final = Setting.INITIAL_WINDOW_SIZE
STARTED: Final = frames.PREFACE + settings()
WAITING: Final = frames.PREFACE + settings((WINDOW, 0)) + b"".join(map(asked, STREAMS))
"""Requests whose answers wait for a window of their own."""
STARVED: Final = frames.PREFACE + settings((WINDOW, 1 << 20)) + b"".join(map(asked, STREAMS))
"""Requests whose answers wait for the window of the connection."""

# A case: what is sent before, the attack, and True if it ends the connection; None: it does on a fast machine, where
# the whole attack fits in a second.
HTTP2: Final[dict[str, tuple[bytes, bytes, bool | None]]] = {
    "settings that come twice": (
        WAITING,
        settings(*((WINDOW, number & 1) for number in range(2730))) * 8,
        True,
    ),
    "many settings": (WAITING, settings(*((0x1000 + number, 1) for number in range(101))), True),
    "a window in each frame": (
        WAITING,
        b"".join(settings((WINDOW, number & 1)) for number in range(5000)),
        None,
    ),
    "windows of the connection": (STARVED, number_frame(frames.WINDOW_UPDATE, 0, 1) * 20_000, False),
    "windows of streams": (
        WAITING,
        b"".join(number_frame(frames.WINDOW_UPDATE, stream, 1) for stream in STREAMS) * 30,
        False,
    ),
    "pings": (WAITING, frame(frames.PING, 0, 0, b"12345678") * 50_000, False),
    "requests": (STARTED, b"".join(map(asked, STREAMS)), False),
    "requests that are reset": (
        STARTED,
        b"".join(asked(stream) + number_frame(frames.RST_STREAM, stream, 8) for stream in range(1, 9001, 2)),
        None,
    ),
    "empty continuations": (
        STARTED,
        b"".join(
            frame(frames.HEADERS, frames.END_STREAM, stream, asked(stream)[9:])
            + frame(frames.CONTINUATION, 0, stream) * 60
            + frame(frames.CONTINUATION, frames.END_HEADERS, stream)
            for stream in range(1, 601, 2)
        ),
        False,
    ),
    "fields of one byte": (STARTED, b"".join(block(stream, b"\x90" * 60_000) for stream in range(1, 41, 2)), False),
    "fields that enter the table": (
        STARTED,
        b"".join(block(stream, b"\x40\x01a\x01b" * 12_000) for stream in range(1, 41, 2)),
        False,
    ),
    "DATA of one byte": (STARTED + asked(1, b"POST"), frame(frames.DATA, 0, 1, b"x") * 60_000, False),
    "empty DATA": (STARTED + asked(1, b"POST"), frame(frames.DATA, 0, 1) * 60_000, None),
    "padding": (
        STARTED + asked(1, b"POST"),
        frame(frames.DATA, frames.PADDED, 1, b"\0") * 60_000,
        None,
    ),
    "unknown frames": (WAITING, frame(99, 0, 1) * 60_000, None),
}

POST: Final = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
HTTP1: Final[dict[str, tuple[bytes, bytes]]] = {
    "chunks of one byte": (POST + b"1\r\nx\r\n" * 300_000 + b"0\r\n\r\n", b"\r\n\r\n300000"),
    "an endless extension": (POST + b"1;a=" + b"b" * 2_000_000, b"400 Bad Request"),
    "extensions": (POST + b"1;a=%b\r\nx\r\n" % (b"b" * 1000) * 2000, b"400 Bad Request"),
    "an endless trailer": (POST + b"1\r\nx\r\n0\r\na: " + b"b" * 2_000_000, b"400 Bad Request"),
    "trailers": (POST + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 300_000, b"400 Bad Request"),
    "pipelined requests": (
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 4000 + b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        b"x" * 200,
    ),
}


def websocket_frame(kind: int, data: bytes, *, last: bool = True) -> bytes:
    """Return a frame with a mask of zeros."""
    size = len(data)
    length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BQ", 0xFF, size)
    return bytes((0x80 * last | kind,)) + length + bytes(4) + data


HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
POLICY = b"\x88\x02\x03\xf0"
CLOSING: Final = websocket_frame(8, struct.pack(">H", 1000))
WEBSOCKET: Final[dict[str, tuple[bytes, bytes]]] = {
    "a frame of 30 MB": (websocket_frame(2, b"x" * 30_000_000) + CLOSING, b"\x88\x02\x03\xe8"),
    "messages of 1 MB": (websocket_frame(2, b"x" * 1_000_000) * 10 + CLOSING, b"\x88\x02\x03\xe8"),
    "messages of one byte": (websocket_frame(2, b"x") * 20_000 + CLOSING, b"\x88\x02\x03\xe8"),
    "empty messages": (websocket_frame(2, b"") * 20_000, POLICY),
    "empty parts": (websocket_frame(2, b"", last=False) + websocket_frame(0, b"", last=False) * 20_000, POLICY),
    "pings": (websocket_frame(9, b"") * 20_000, POLICY),
    "pongs": (websocket_frame(10, b"") * 20_000, POLICY),
}


class Attacker:
    """A client with a plain socket, in one thread: an SSL object must not be used by two."""

    def __init__(self, served: Any, alpn: str) -> None:
        raw = socket.create_connection(("127.0.0.1", served.server.port))
        self._socket = served.context(alpn).wrap_socket(raw, server_hostname="localhost")
        self._socket.setblocking(False)

    def exchange(self, data: bytes, last: bytes, *, record: int = 1 << 14) -> bytes:
        """Send data, and return what comes meanwhile and until the server ends the connection or ``last`` comes; no
        ``last``: until it ends it. ``record``: most bytes of a TLS record."""
        at, found, seen = 0, bytearray(), 0
        while True:
            writing = []
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                try:
                    if at < len(data):
                        writing = [self._socket]
                        at += self._socket.send(data[at : at + record])
                except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                    at = len(data)  # the server has closed; what it said before is still there
            with contextlib.suppress(ssl.SSLWantReadError):
                try:
                    while part := self._socket.recv(1 << 16):
                        found += part
                except (ConnectionResetError, ssl.SSLError) as error:
                    if isinstance(error, ssl.SSLWantReadError):
                        raise
                return bytes(found)
            if last and at == len(data) and last in found[max(seen - len(last), 0) :]:
                return bytes(found)
            if at == len(data):
                seen = len(found)
            if not any(select.select([self._socket], writing, [], 20)):
                raise TimeoutError(f"nothing for 20 s; {at} of {len(data)} bytes are sent, {len(found)} have come")

    def close(self) -> None:
        self._socket.close()


async def attack(served: Any, alpn: str, steps: Callable[[Attacker], bytes]) -> tuple[bytes, float]:
    """Return what the attacker has received, and the longest pass meanwhile."""
    attacker = await trio.to_thread.run_sync(Attacker, served, alpn)
    with measured() as longest:
        received = await trio.to_thread.run_sync(steps, attacker)
    attacker.close()
    await served.check_alive()
    return received, longest.seconds


@pytest.mark.parametrize("case", HTTP2)
async def test_frames_of_http2_leave_time_for_others(wire: Any, case: str) -> None:
    before, sent, ends = HTTP2[case]
    ping = frame(frames.PING, frames.ACK, 0, b"the end.")

    def steps(attacker: Attacker) -> bytes:
        return attacker.exchange(before + sent + frame(frames.PING, 0, 0, b"the end."), ping)

    served = await wire(app)
    received, longest = await attack(served, "h2", steps)
    assert ends is None or (ping not in received) == ends
    assert longest < on_this_machine(LONGEST)


@pytest.mark.parametrize("case", HTTP1)
async def test_requests_of_http1_leave_time_for_others(wire: Any, case: str) -> None:
    sent, end = HTTP1[case]

    def steps(attacker: Attacker) -> bytes:
        return attacker.exchange(sent, end if end.endswith(b"300000") else b"")

    received, longest = await attack(await wire(app), "http/1.1", steps)
    assert end in received
    assert longest < on_this_machine(LONGEST)


@pytest.mark.parametrize("case", WEBSOCKET)
async def test_frames_of_websockets_leave_time_for_others(wire: Any, case: str) -> None:
    sent, end = WEBSOCKET[case]

    def steps(attacker: Attacker) -> bytes:
        assert b"101 Switching" in attacker.exchange(HANDSHAKE, b"\r\n\r\n")
        return attacker.exchange(sent, b"")

    received, longest = await attack(await wire(app), "http/1.1", steps)
    assert end[2:] in received
    assert longest < on_this_machine(LONGEST)


async def test_records_of_one_byte_leave_time_for_others(wire: Any) -> None:
    def steps(attacker: Attacker) -> bytes:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n"
        return attacker.exchange(head + b"x" * 20_000, b"20000", record=1)

    received, longest = await attack(await wire(app), "http/1.1", steps)
    assert received.endswith(b"20000")
    assert longest < on_this_machine(LONGEST)


async def test_many_requests_that_end_together_leave_time_for_others(wire: Any) -> None:
    """A client leaves 900 requests behind, and 900 requests time out in one second: each has work with its end."""
    begun, ended, all_ended = 0, 0, trio.Event()

    async def waiting(request: Request) -> Response:
        nonlocal begun, ended
        begun += 1
        try:
            if request.path == "/late":
                request.exchange.limit(trio.current_time() + 1000)
                await trio.sleep_forever()
            await request.wait_disconnect()
        finally:
            since = thread_time()
            while thread_time() - since < 0.0002:
                pass
            ended += 1
            if ended == len(STREAMS):
                all_ended.set()
        return Response(200)

    for late in (False, True):
        begun, ended, all_ended = 0, 0, trio.Event()
        served = await wire(waiting)
        attacker = await trio.to_thread.run_sync(Attacker, served, "h2")
        sent = STARTED + b"".join(asked(stream, path=b"/late" if late else b"/") for stream in STREAMS)
        ping = frame(frames.PING, frames.ACK, 0, b"the end.")
        await trio.to_thread.run_sync(attacker.exchange, sent + frame(frames.PING, 0, 0, b"the end."), ping)
        with trio.fail_after(60):
            while begun < len(STREAMS):
                await trio.lowlevel.checkpoint()
        with measured() as longest, trio.fail_after(60):
            if late:
                (connection,) = served.server._connections
                for exchange in connection._exchanges:
                    exchange.limit(trio.current_time())
            else:
                attacker.close()
            await all_ended.wait()
        attacker.close()
        assert longest.seconds < on_this_machine(LONGEST)
        await served.check_alive()


async def test_handshakes_leave_time_for_others(wire: Any) -> None:
    """300 clients send the first message of their handshake at once."""
    served = await wire(app)

    def steps() -> int:
        context, clients = served.context("h2"), []
        for _ in range(300):
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            with contextlib.suppress(ssl.SSLWantReadError):
                context.wrap_bio(received, sent, server_hostname="localhost").do_handshake()
            clients.append((socket.create_connection(("127.0.0.1", served.server.port), 20), sent.read()))
        for raw, hello in clients:
            raw.sendall(hello)
        answers = sum(bool(raw.recv(1 << 16)) for raw, _ in clients)
        for raw, _ in clients:
            raw.close()
        return answers

    with measured() as longest:
        assert await trio.to_thread.run_sync(steps) == 300
    assert longest.seconds < on_this_machine(LONGEST)
    await served.check_alive()
