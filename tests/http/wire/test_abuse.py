"""Clients that err, stall, vanish or attack: each is bounded, and the server still answers others.

Every test covers a way in which a server could hang, leak or crash, and ends with `check_alive`. Limits are small, so
that a bound acts within milliseconds.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from kubechronicle.http.messages import ClientDisconnected, Request, Response

SMALL = 4096


async def hello(request: Request) -> Response:
    if request.method == "POST":
        return Response(200, [], b"%d" % len(await request.body(1 << 20)))
    return Response(200, [], b"hello")


def reset_on_close(stream: Any) -> None:
    """Turn the client's next close into a TCP reset."""
    stream.transport_stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# --- malformed HTTP/1.1 ---

MALFORMED = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2 without its ALPN": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": b"GET / HTTP/3.7\r\nHost: h\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: h\n\n",
    "upgrade with a body": b"POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 27\r\n\r\nGET /inner HTTP/1.1\r\nHost:h",
    "no version": b"GET /\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "length and chunked": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "negative length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    "signed length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\nabcd",
    "chunked in 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded field": b"GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\n c\r\n\r\n",
    "folded field, tab": b"GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\tc\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nHost: h\r\nX-A : b\r\n\r\n",
    "NUL in a field": b"GET / HTTP/1.1\r\nHost: h\r\nX-A: b\0c\r\n\r\n",
    "target without slash": b"GET foo HTTP/1.1\r\nHost: h\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
    "non-ASCII target": b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_malformed_requests_are_400(wire: Any, case: str) -> None:
    served = await wire(hello)
    received = await served.say(MALFORMED[case])
    assert received.startswith(b"HTTP/1.1 400 "), received[:60]
    assert b"connection: close\r\n" in received.lower()
    assert received.count(b"HTTP/1.1") == 1
    assert served.server.statistics().protocol_errors == 1
    await served.check_alive()


async def test_a_folded_field_is_seen_across_segments_and_pipelining(wire: Any) -> None:
    served = await wire(hello)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\n")
    await stream.send_all(b" folded: x\r\n\r\n")
    received = await served.rest(stream)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in received
    assert received.count(b"HTTP/1.1") == 2


async def test_a_body_that_looks_folded_is_none(wire: Any) -> None:
    served = await wire(hello)
    received = await served.say(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\n a\n")
    assert received.endswith(b"\r\n\r\n4")


async def test_unknown_transfer_coding_and_method_connect(wire: Any) -> None:
    served = await wire(hello)
    odd = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    assert (await served.say(odd)).startswith(b"HTTP/1.1 501 ")
    assert (await served.say(b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
    await served.check_alive()


async def test_bad_chunk_ends_the_connection(wire: Any) -> None:
    served = await wire(hello)
    received = await served.say(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n")
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1
    await served.check_alive()


async def test_a_bad_chunk_is_400_whenever_it_comes(wire: Any) -> None:
    """The handler waits for the body when the bad chunk comes, in a record of its own."""
    reading = trio.Event()

    async def app(request: Request) -> Response:
        reading.set()
        return Response(200, [], await request.body(1 << 20))

    served = await wire(app)
    stream = await served.connect()
    await stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await reading.wait()
    await stream.send_all(b"zz\r\nabc\r\n")
    received = b""
    with trio.fail_after(60):
        while part := await stream.receive_some():
            received += part
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1
    await served.check_alive()


async def test_upgrade_to_h2c_is_ignored(wire: Any) -> None:
    served = await wire(hello)
    received = await served.say(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    )
    assert received.startswith(b"HTTP/1.1 200 ")


async def test_huge_header_is_431(wire: Any) -> None:
    served = await wire(hello, header_bytes=8192)
    received = await served.say(b"GET / HTTP/1.1\r\nHost: h\r\nX-A: " + b"a" * 20_000)
    assert received.startswith(b"HTTP/1.1 431 ")
    await served.check_alive()


async def test_trailing_garbage_after_a_request(wire: Any) -> None:
    served = await wire(hello)
    received = await served.say(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\x00\x01garbage\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in received
    await served.check_alive()


# --- clients that stall ---


async def test_a_header_that_never_ends_is_cut(wire: Any) -> None:
    served = await wire(hello, header_wait=0.1)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHo")
    assert await served.rest(stream) == b""
    second = await served.http1()  # also after a valid request on the connection
    await second.ask("GET", "/")
    await second.stream.send_all(b"G")
    assert await served.rest(second.stream) == b""
    assert served.server.statistics().timed_out == 2
    await served.check_alive()


async def test_a_header_byte_by_byte_does_not_extend_the_wait(wire: Any) -> None:
    served = await wire(hello, header_wait=0.1, discard_wait=0.3)
    stream = await served.connect()
    with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(b"G")
    assert served.server.statistics().timed_out + served.server.statistics().protocol_errors == 1
    await served.check_alive()


async def test_idle_connections_are_closed(wire: Any) -> None:
    served = await wire(hello, idle=0.1)
    client = await served.http1()
    await client.ask("GET", "/")
    assert await served.rest(client.stream) == b""
    second = await served.http2()
    await second.answer(await second.send("GET", "/"))
    await second.until(lambda event: event is None)
    assert served.server.statistics().timed_out == 2


async def test_a_body_that_never_arrives_is_abandoned(wire: Any) -> None:
    gone = trio.Event()

    async def app(request: Request) -> Response:
        try:
            return Response(200, [], await request.body(100))
        except ClientDisconnected:
            gone.set()
            raise

    served = await wire(app, body_wait=0.1)
    received = await served.say(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
    assert received.startswith(b"HTTP/1.1 408 ")
    assert gone.is_set()
    second = await served.http2()
    stream_id = await second.send("POST", "/", end=False)
    seen = await second.until(lambda event: isinstance(event, h2.events.StreamReset))
    assert seen[-1].stream_id == stream_id
    assert (await second.answer(await second.send("GET", "/alive"))).status == 200
    assert served.server.statistics().running_requests == 0


def endless(ended: trio.Event) -> Any:
    async def app(request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 16384
            finally:
                ended.set()

        return Response(200, [], chunks())

    return app


async def test_a_client_that_does_not_read_is_cut_off(wire: Any) -> None:
    ended = trio.Event()
    served = await wire(endless(ended), send_wait=0.2)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    with trio.fail_after(60):
        await ended.wait()
    assert served.server.statistics().cut_off_slow == 1
    await served.check_alive()


async def test_a_large_unread_answer_is_cut_off(wire: Any) -> None:
    async def app(request: Request) -> Response:
        return Response(200, [], b"x" * 50_000_000)

    served = await wire(app, send_wait=0.2)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    with trio.fail_after(60):
        while not served.server.statistics().cut_off_slow:
            await trio.testing.wait_all_tasks_blocked(0.01)
    await served.check_alive()
    assert served.server.statistics().running_requests == 0


async def test_h2_only_the_unread_stream_is_cut_off(wire: Any) -> None:
    ended = trio.Event()
    served = await wire(endless(ended), send_wait=0.2)
    client = await served.http2()
    client.credit = False
    stream_id = await client.send("GET", "/")
    seen = await client.until(lambda event: isinstance(event, h2.events.StreamReset))
    assert (seen[-1].stream_id, seen[-1].error_code) == (stream_id, ErrorCodes.CANCEL)
    assert ended.is_set()
    assert served.server.statistics().cut_off_slow == 1
    client.h2.increment_flow_control_window(1 << 20)  # the connection's window, which the dead stream had used up
    await client.flush()
    assert (await client.answer(await client.send("GET", "/alive"))).status == 200


async def test_h2_client_that_does_not_read_the_socket_is_cut_off(wire: Any) -> None:
    ended = trio.Event()
    served = await wire(endless(ended), send_wait=0.2)
    client = await served.http2()
    client.h2.update_settings({4: (1 << 31) - 1})  # SETTINGS_INITIAL_WINDOW_SIZE
    client.h2.increment_flow_control_window((1 << 31) - 1 - 65535)
    await client.send("GET", "/")
    with trio.fail_after(60):
        await ended.wait()
    assert served.server.statistics().cut_off_slow >= 1
    await served.check_alive()


async def test_pings_with_unread_answers_are_bounded(wire: Any) -> None:
    served = await wire(hello, send_wait=0.2)
    client = await served.http2()
    frames = b"".join(b"\0\0\x08\x06\0\0\0\0\0" + b"12345678" for _ in range(1000))
    with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
        while True:
            await client.stream.send_all(frames)
    assert served.server.statistics().cut_off_slow == 1
    await served.check_alive()


# --- clients that vanish ---


async def test_reset_in_every_phase(wire: Any) -> None:
    release = trio.Event()

    async def app(request: Request) -> Response:
        await release.wait()
        return Response(200, [], b"x" * 100_000)

    served = await wire(app)
    whole, half = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na"
    for sent in (b"", b"GET", whole, half):
        stream = await served.connect()
        await stream.send_all(sent)
        reset_on_close(stream)
        await stream.transport_stream.aclose()
    release.set()
    await served.check_alive()
    with trio.fail_after(60):
        while served.server.statistics().open_connections:
            await trio.testing.wait_all_tasks_blocked(0.005)
    assert served.server.statistics().running_requests == 0
    assert served.server.statistics().guarded_errors == 0


async def test_h2_reset_in_every_phase(wire: Any) -> None:
    release = trio.Event()

    async def app(request: Request) -> Response:
        await release.wait()
        return Response(200, [], b"x" * 100_000)

    served = await wire(app)
    for streams in (0, 1, 20):
        client = await served.http2()
        for _ in range(streams):
            await client.send("GET", "/")
        reset_on_close(client.stream)
        await client.stream.transport_stream.aclose()
    release.set()
    await served.check_alive()
    with trio.fail_after(60):
        while served.server.statistics().open_connections:
            await trio.testing.wait_all_tasks_blocked(0.005)
    assert served.server.statistics().running_requests == 0
    assert served.server.statistics().guarded_errors == 0


async def test_plain_bytes_instead_of_tls(wire: Any) -> None:
    served = await wire(hello)
    for sent in (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"", b"\x16\x03\x01\xff\xff" + b"\0" * 20):
        tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
        with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
            await tcp.send_all(sent)
            await tcp.send_eof()
            while await tcp.receive_some():
                pass
    assert served.server.statistics().handshakes_failed == 3
    await served.check_alive()


async def test_handshake_that_stalls_is_cut(wire: Any) -> None:
    served = await wire(hello, handshake=1.0)  # enough for check_alive on a busy machine
    tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
    with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
        assert await tcp.receive_some() == b""
    assert served.server.statistics().timed_out == 1
    await served.check_alive()


# --- malformed and hostile HTTP/2 ---

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


HOSTILE = {
    "no preface": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "frame too large": PREFACE + b"\xff\xff\xff\x00\0\0\0\0\x01" + b"x" * 20_000,
    "data on stream 0": PREFACE + frame(0, 0, 0, b"x"),
    "data on an idle stream": PREFACE + frame(0, 0, 1, b"x"),
    "bad HPACK": PREFACE + frame(1, 5, 1, b"\xff\xff\xff\xff\xff"),
    "continuation without headers": PREFACE + frame(9, 4, 1, b""),
    "zero window update": PREFACE + frame(8, 0, 0, b"\0\0\0\0"),
    "window overflow": PREFACE + frame(8, 0, 0, b"\x7f\xff\xff\xff"),
    "even stream": PREFACE + frame(1, 5, 2, b"\x82\x84\x87\x41\x01h"),
    "push promise": PREFACE + frame(5, 4, 1, b"\0\0\0\x02"),
    "settings of odd size": PREFACE + frame(4, 0, 0, b"\0\0\0"),
    "continuation flood": PREFACE + frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"") * 500,
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_hostile_h2_ends_its_connection_only(wire: Any, case: str) -> None:
    served = await wire(hello)
    stream = await served.connect("h2")
    await stream.send_all(HOSTILE[case])
    await served.rest(stream)
    assert served.server.statistics().protocol_errors == 1
    assert served.server.statistics().guarded_errors == 0
    await served.check_alive()


BAD_REQUESTS = {
    "no path": b"\x82\x87\x41\x01h",
    "no method": b"\x84\x87\x41\x01h",
    "path twice": b"\x82\x84\x84\x87\x41\x01h",
    "connection field": b"\x82\x84\x87\x41\x01h" + b"\x00\x0aconnection\x05close",
    "upper case field": b"\x82\x84\x87\x41\x01h" + b"\x00\x03X-A\x01b",
    "non-ASCII path": b"\x82\x87\x41\x01h" + b"\x04\x02/\xff",
    "relative path": b"\x82\x87\x41\x01h" + b"\x04\x03foo",
    "empty path": b"\x82\x87\x41\x01h" + b"\x04\x00",
    "CONNECT": b"\x02\x07CONNECT\x41\x01h",
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
async def test_bad_h2_requests_reach_no_application(wire: Any, case: str) -> None:
    called = False

    async def app(request: Request) -> Response:
        nonlocal called
        called = True
        return Response(200)

    served = await wire(app, idle=0.3)
    stream = await served.connect("h2")
    await stream.send_all(PREFACE + frame(1, 5, 1, BAD_REQUESTS[case]))
    await served.rest(stream)
    assert not called
    assert served.server.statistics().guarded_errors == 0
    await served.check_alive()


async def test_rapid_reset_is_stopped(wire: Any) -> None:
    """Streams opened and reset at once never exceed the allowed number, while their requests still run."""
    release = trio.Event()
    running = most = 0

    async def app(request: Request) -> Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return Response(200)

    served = await wire(app, streams=20)
    client = await served.http2()
    fields = [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "h")]
    with contextlib.suppress(trio.BrokenResourceError):
        for stream_id in range(1, 2001, 2):
            client.h2.send_headers(stream_id, fields, end_stream=True)
            client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
            await client.flush()
    seen = await client.until(lambda event: event is None or isinstance(event, h2.events.ConnectionTerminated))
    goaway = next(event for event in seen if isinstance(event, h2.events.ConnectionTerminated))
    assert goaway.error_code == ErrorCodes.ENHANCE_YOUR_CALM
    assert most <= 40
    release.set()
    await served.check_alive()


async def test_too_many_streams_are_rejected(wire: Any) -> None:
    release = trio.Event()

    async def app(request: Request) -> Response:
        await release.wait()
        return Response(200)

    served = await wire(app, streams=5)
    client = await served.http2()
    await client.until(lambda event: isinstance(event, h2.events.RemoteSettingsChanged))
    client.h2.remote_settings[3] = 1000  # forget the server's limit
    client.h2.remote_settings.acknowledge()
    with contextlib.suppress(Exception):
        for _ in range(10):
            await client.send("GET", "/")
    await served.rest(client.stream)
    release.set()
    await served.check_alive()


# --- mutated conversations ---

SEEDS = (
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 3,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\nX-T: a\r\n\r\n"
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nabcde"
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n\x81\x81\0\0\0\0a\x88\x80\0\0\0\0",
    PREFACE
    + frame(1, 4, 1, b"\x83\x84\x87\x41\x01h")
    + frame(0, 0, 1, b"body")
    + frame(1, 5, 3, b"\x82\x84\x87\x41\x01h")
    + frame(3, 0, 3, b"\0\0\0\x08")
    + frame(0, 1, 1, b"end")
    + frame(6, 0, 0, b"12345678"),
)


def mutated(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(5)):
        place = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[place] = random.randrange(256)
            case 1:
                changed[place:place] = bytes(random.choices(b"\0\n\r :\t0\xff", k=random.randrange(1, 4)))
            case 2:
                del changed[place : place + random.randrange(1, 5)]
            case _:
                changed[place:place] = changed[place : place + random.randrange(1, 40)]
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
async def test_mutated_conversations_never_reach_the_guard(wire: Any, seed: int) -> None:
    """The guard must not act: it would hide a bug. Every error is the client's and is answered as such."""
    random = Random(seed)
    served = await wire(hello)
    for _ in range(100):
        data = random.choice(SEEDS)
        stream = await served.connect("h2" if data.startswith(PREFACE) else "http/1.1")
        data = mutated(random, data)
        cut = random.randrange(len(data) + 1)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data[:cut])
            await stream.send_all(data[cut:])
        await trio.aclose_forcefully(stream)
    await served.check_alive()
    with trio.fail_after(60):
        while served.server.statistics().open_connections:
            await trio.testing.wait_all_tasks_blocked(0.005)
    assert served.server.statistics().guarded_errors == 0
    assert served.server.statistics().running_requests == 0


async def test_many_upgrades_in_one_segment_are_ignored(wire: Any) -> None:
    served = await wire(hello)
    one = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    received = await served.say(one * 200 + b"GET / HTTP/1.0\r\n\r\n")
    assert received.count(b"HTTP/1.1 200 ") == 201
    assert served.server.statistics().guarded_errors == 0
