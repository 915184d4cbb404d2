"""Requests and answers over real TLS: HTTP/1.1 and HTTP/2 as clients use them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import h2.events
import h11
import pytest
import trio
from h2.errors import ErrorCodes

from kubechronicle.http.messages import BodyTooLarge, Request, Response
from kubechronicle.http.wire.connection import Connection

MIB = 1024 * 1024


async def echo(request: Request) -> Response:
    """Answer with the body, or with the parsed target of the request."""
    if request.method in ("POST", "PUT"):
        try:
            return Response(200, [("x-path", request.raw_path)], await request.body(3 * MIB))
        except BodyTooLarge:
            return Response(413, [], b"too large")
    text = f"{request.method} {request.raw_path} {request.path} {request.query_string} {request.http_version}"
    return Response(200, [("content-type", "text/plain")], text.encode())


async def test_keep_alive_carries_many_requests(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http1()
    for number in range(1500):
        answer = await client.ask("GET", f"/{number}")
        assert answer.body.startswith(f"GET /{number} ".encode())
    assert served.server.statistics().accepted == 1
    assert served.server.statistics().requests == 1500
    assert served.server.statistics().running_requests == 0


async def test_targets_stay_raw(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http1()
    answer = await client.ask("GET", "/api/a%2Fb?x=%20y")
    assert answer.body == b"GET /api/a%2Fb /api/a/b x=%20y 1.1"
    assert (await client.ask("GET", "https://elsewhere:1/a?b=/")).body == b"GET /a /a b=/ 1.1"
    assert (await client.ask("GET", "https://elsewhere?b")).body == b"GET / / b 1.1"
    second = await served.http2()
    answer = await second.answer(await second.send("GET", "/api/a%2Fb?x=%20y"))
    assert answer.body == b"GET /api/a%2Fb /api/a/b x=%20y 2"


async def test_pipelined_requests_are_answered_in_order(wire: Any) -> None:
    served = await wire(echo)
    stream = await served.connect()
    requests = [b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number for number in range(20)]
    requests.append(b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    await stream.send_all(b"".join(requests))
    received = await served.rest(stream)
    places = [received.index(b"GET /%d " % number) for number in range(20)]
    assert places == sorted(places)
    assert received.endswith(b"GET /last /last  1.1")


async def test_an_answer_is_one_record(wire: Any) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    received = bytes(await stream.receive_some(16384))
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n\r\nGET / /  1.1")


async def test_bodies_arrive_whole(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http1()
    body = bytes(range(256)) * 8192  # 2 MiB, more than any buffer
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, "POST", "/", body)
        answer = await client.answer()
    assert answer.body == body
    assert (await client.ask("PUT", "/", b"chunked", {"transfer-encoding": "chunked"})).body == b"chunked"
    assert (await client.ask("POST", "/")).body == b""


async def test_expect_continue(wire: Any) -> None:
    served = await wire(echo)
    stream = await served.connect()
    await stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
    await stream.send_all(b"ok")
    assert bytes(await stream.receive_some()).endswith(b"\r\n\r\nok")


async def test_expect_continue_rejected(wire: Any) -> None:
    """Without 100 the client may or may not send its body, so the connection must close."""
    served = await wire(refuse)
    received = await served.say(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close\r\n" in received


async def test_an_application_may_wait_for_its_client_to_leave(wire: Any) -> None:
    waiting, left = trio.Event(), trio.Event()

    async def app(request: Request) -> Response:
        await request.body(100)
        waiting.set()
        await request.wait_disconnect()
        left.set()
        return Response(200)

    served = await wire(app)
    for method, body in (("GET", b""), ("POST", b"body")):
        client = await served.http1()
        await client.send(method, "/", body)
        with trio.fail_after(60):
            await waiting.wait()
            await client.stream.aclose()
            await left.wait()
        waiting, left = trio.Event(), trio.Event()
    second = await served.http2()
    await second.send("GET", "/")
    with trio.fail_after(60):
        await waiting.wait()
        await second.stream.aclose()
        await left.wait()
    await served.check_alive()


async def test_requests_pipelined_behind_a_stream_wait_for_its_end(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    stream = await served.connect()
    await stream.send_all(b"GET /watch HTTP/1.1\r\nHost: h\r\n\r\n" + b"GET /alive HTTP/1.1\r\nHost: h\r\n\r\n" * 200)
    await watch.send.send(b"chunk")
    await watch.send.aclose()
    received = b""
    with trio.fail_after(60):
        while received.count(b"HTTP/1.1 200") < 201:
            received += await stream.receive_some()
    assert received.index(b"chunk") < received.index(b"\r\n\r\nok")


async def test_head_has_the_length_but_no_body(wire: Any) -> None:
    served = await wire(echo)
    received = await served.say(b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert b"content-length: 13\r\n" in received
    assert received.endswith(b"\r\n\r\n")


async def test_http_1_0(wire: Any) -> None:
    served = await wire(echo)
    assert (await served.say(b"GET / HTTP/1.0\r\n\r\n")).endswith(b"GET / /  1.0")


async def test_body_too_large_is_answered(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http1()
    large = b"x" * (3 * MIB + 1)
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                await client.send("POST", "/", large)

        nursery.start_soon(send)
        assert (await client.answer()).status == 413
        nursery.cancel_scope.cancel()
    await served.check_alive()


async def refuse(request: Request) -> Response:
    return Response(403, [], b"no")


async def test_an_unread_short_body_keeps_the_connection(wire: Any) -> None:
    served = await wire(refuse)
    client = await served.http1()
    for _ in range(3):
        assert (await client.ask("POST", "/", b"x" * 100_000)).status == 403
    assert served.server.statistics().accepted == 1


async def test_an_answer_precedes_the_end_of_the_body(wire: Any) -> None:
    served = await wire(refuse)
    stream = await served.connect()
    await stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
    assert bytes(await stream.receive_some()).endswith(b"\r\n\r\nno")
    await stream.send_all(b" full" + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert bytes(await stream.receive_some()).endswith(b"\r\n\r\nno")


async def test_an_endless_body_gets_its_answer_and_the_end(wire: Any) -> None:
    served = await wire(refuse)
    stream = await served.connect()
    await stream.send_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n")
    received = b""
    async with trio.open_nursery() as nursery:

        async def pour() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(b"x" * 65536)

        nursery.start_soon(pour)
        received = await served.rest(stream)
        nursery.cancel_scope.cancel()
    assert received.endswith(b"\r\n\r\nno")
    await served.check_alive()


@pytest.mark.parametrize(
    ("fields", "sent", "closes"),
    [
        (b"Content-Length: 200000", b"x" * 10, False),
        (b"Content-Length: 2000000", b"x" * 10, True),
        (b"Content-Length: 2000000", b"x" * 1_900_000, True),
        (b"Transfer-Encoding: chunked", b"a\r\n", True),
    ],
)
async def test_the_answer_announces_a_close_of_the_connection(
    wire: Any, fields: bytes, sent: bytes, closes: bool
) -> None:
    """Otherwise the client would send its next request into a closing connection, and not repeat it."""
    served = await wire(refuse)
    stream = await served.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"POST / HTTP/1.1\r\nHost: h\r\n" + fields + b"\r\n\r\n" + sent)
        with trio.fail_after(60):
            received = bytes(await stream.receive_some(16384))
        assert received.endswith(b"\r\n\r\nno")
        assert (b"connection: close\r\n" in received) == closes
        nursery.cancel_scope.cancel()


class Watch:
    """A stream that the test feeds and that records its end."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[bytes](0)
        self.ended = trio.Event()
        self.request: Request

    async def app(self, request: Request) -> Response:
        self.request = request
        return Response(200, [("content-type", "application/json")], self.chunks())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.receive:
                if chunk == b"fail":
                    raise RuntimeError("iterator failed")
                yield chunk
        finally:
            self.ended.set()


async def test_stream_chunks_leave_at_once(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http1()
    await client.send("GET", "/watch")
    with trio.fail_after(60):
        assert isinstance(await client.event(), h11.Response)  # before there is any chunk
        for chunk in (b"one\n", b"two\n"):
            await watch.send.send(chunk)
            assert (await client.event()).data == chunk
        await watch.send.aclose()
        assert isinstance(await client.event(), h11.EndOfMessage)
    client.h11.start_next_cycle()


@pytest.mark.parametrize("way", ["close", "reset", "half-close"])
async def test_a_client_that_leaves_ends_its_stream(wire: Any, way: str) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http1()
    await client.send("GET", "/watch")
    await client.event()
    if way == "close":
        await client.stream.aclose()
    elif way == "half-close":
        await client.stream.transport_stream.send_eof()
    else:
        transport = client.stream.transport_stream
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await transport.aclose()
    with trio.fail_after(60):
        await watch.ended.wait()
    await served.check_alive()


async def test_a_failing_stream_is_visibly_incomplete(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http1()
    await client.send("GET", "/watch")
    await client.event()
    await watch.send.send(b"one")
    await watch.send.send(b"fail")
    with pytest.raises(h11.RemoteProtocolError):
        await read_to_error(client)
    assert served.server.statistics().guarded_errors == 1


async def read_to_error(client: Any) -> None:
    with trio.fail_after(60):
        while True:
            await client.event()


async def test_an_application_error_is_500(wire: Any) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("bug")

    served = await wire(broken)
    client = await served.http1()
    assert (await client.ask("GET", "/")).status == 500
    assert (await client.ask("GET", "/")).status == 500  # and the connection continues
    second = await served.http2()
    assert (await second.answer(await second.send("GET", "/"))).status == 500


async def test_a_line_break_in_a_header_never_reaches_the_wire(wire: Any) -> None:
    async def splitting(request: Request) -> Response:
        return Response(200, [("warning", "a\r\nset-cookie: b")])

    served = await wire(splitting)
    client = await served.http1()
    await client.send("GET", "/")
    assert (await client.answer()).status == 500
    second = await served.http2()
    assert (await second.answer(await second.send("GET", "/"))).status == 500
    await served.check_alive()


# --- HTTP/2 ---


async def test_h2_streams_at_once(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http2()
    streams = {await client.send("GET", f"/{number}"): number for number in range(90)}
    answers = await client.answers(set(streams))
    for stream_id, number in streams.items():
        assert answers[stream_id].body.startswith(f"GET /{number} ".encode())


async def test_h2_large_bodies_both_ways(wire: Any) -> None:
    served = await wire(echo)
    client = await served.http2()
    stream_id = await client.send("POST", "/", end=False)
    body, sent, received, ended = b"0123456789abcdef" * 131_072, 0, b"", False  # 2 MiB
    while not ended:
        while sent < len(body) and (window := client.h2.local_flow_control_window(stream_id)):
            size = min(window, client.h2.max_outbound_frame_size, len(body) - sent)
            client.h2.send_data(stream_id, body[sent : sent + size], end_stream=sent + size == len(body))
            sent += size
        await client.flush()
        for event in await client.events():
            if isinstance(event, h2.events.DataReceived):
                received += event.data
            ended = ended or isinstance(event, h2.events.StreamEnded)
    assert received == body


async def test_h2_early_answer_resets_without_error(wire: Any) -> None:
    served = await wire(refuse)
    client = await served.http2()
    stream_id = await client.send("POST", "/", end=False)
    seen = await client.until(lambda event: isinstance(event, h2.events.StreamReset))
    reset = next(event for event in seen if isinstance(event, h2.events.StreamReset))
    assert (reset.stream_id, reset.error_code) == (stream_id, ErrorCodes.NO_ERROR)
    assert any(isinstance(event, h2.events.StreamEnded) for event in seen)
    assert (await client.answer(await client.send("GET", "/"))).status == 403


async def test_h2_late_body_of_an_answered_request_is_ignored(wire: Any) -> None:
    """DATA for a stream with an early answer, which the server has forgotten, must not end the connection."""
    served = await wire(refuse)
    client = await served.http2()
    stream_id = await client.send("POST", "/", end=False)
    for _ in range(4):
        client.h2.send_data(stream_id, b"x" * 8000)
    client.h2.end_stream(stream_id)
    await client.flush()
    assert (await client.answer(stream_id)).status == 403
    assert (await client.answer(await client.send("GET", "/"))).status == 403


async def test_h2_an_unread_body_does_not_block_others(wire: Any) -> None:
    release = trio.Event()

    async def app(request: Request) -> Response:
        if request.path == "/stuck":
            await release.wait()
            return Response(200, [], b"%d" % len(await request.body(MIB)))
        return await echo(request)

    served = await wire(app)
    client = await served.http2()
    stuck = await client.send("POST", "/stuck", end=False)
    await client.until(lambda event: isinstance(event, h2.events.RemoteSettingsChanged))
    sent = 0
    while window := client.h2.local_flow_control_window(stuck):
        size = min(window, 16384)
        client.h2.send_data(stuck, b"x" * size)
        sent += size
    await client.flush()
    assert (await client.answer(await client.send("GET", "/other"))).status == 200
    client.h2.end_stream(stuck)
    await client.flush()
    release.set()
    assert (await client.answer(stuck)).body == b"%d" % sent


async def test_h2_cancelled_stream_ends_its_iterator_and_no_other(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http2()
    stream_id = await client.send("GET", "/watch")
    await client.until(lambda event: isinstance(event, h2.events.ResponseReceived))
    client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
    await client.flush()
    with trio.fail_after(60):
        await watch.ended.wait()
    assert (await client.answer(await client.send("GET", "/alive"))).status == 200


async def test_h2_failing_stream_is_reset(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http2()
    await client.send("GET", "/watch")
    await watch.send.send(b"fail")
    seen = await client.until(lambda event: isinstance(event, h2.events.StreamReset))
    reset = next(event for event in seen if isinstance(event, h2.events.StreamReset))
    assert reset.error_code == ErrorCodes.INTERNAL_ERROR
    assert (await client.answer(await client.send("GET", "/alive"))).status == 200


# --- draining ---


async def test_drain_finishes_running_requests(wire: Any, nursery: trio.Nursery) -> None:
    begun, release = trio.Event(), trio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await release.wait()
        return Response(200, [], b"done")

    served = await wire(slow)
    idle, busy = await served.http1(), await served.http1()
    assert (await idle.ask("GET", "/alive")).status == 200
    await busy.send("GET", "/")
    await begun.wait()
    nursery.start_soon(served.server.drain, 10)
    assert await served.rest(idle.stream) == b""
    with pytest.raises(OSError, match="connect"):
        await served.connect()
    release.set()
    answer = await busy.answer()
    assert (answer.body, answer.headers["connection"]) == (b"done", "close")
    with trio.fail_after(60):
        await served.server.drain(0)


async def test_a_patient_drain_lets_clients_go_with_their_next_answer(wire: Any, nursery: trio.Nursery) -> None:
    async def hello(request: Request) -> Response:
        return Response(200, [], b"hello")

    served = await wire(hello)
    client, other, http2 = await served.http1(), await served.http1(), await served.http2()
    for one in (client, other):
        assert "connection" not in (await one.ask("GET", "/")).headers
    await http2.answer(await http2.send("GET", "/"))
    nursery.start_soon(partial(served.server.drain, 10, patience=3600))
    await http2.until(lambda event: isinstance(event, h2.events.ConnectionTerminated))
    answer = await client.ask("GET", "/")
    assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
    assert await served.rest(client.stream) == b""
    with trio.fail_after(60):
        await served.server.drain(0)  # ends the patience of the other call
        assert await served.rest(other.stream) == b""


async def test_drain_notifies_streams(wire: Any, nursery: trio.Nursery) -> None:
    async def until_draining(request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await request.draining.wait()
            yield b"last"

        return Response(200, [], chunks())

    served = await wire(until_draining)
    http1, http2 = await served.http1(), await served.http2()
    await http1.send("GET", "/")
    await http1.event()
    stream_id = await http2.send("GET", "/")
    await http2.until(lambda event: isinstance(event, h2.events.DataReceived))
    nursery.start_soon(served.server.drain, 10)
    seen = await http2.until(lambda event: event is None or isinstance(event, h2.events.ConnectionTerminated))
    goaway = next(event for event in seen if isinstance(event, h2.events.ConnectionTerminated))
    assert (goaway.error_code, goaway.last_stream_id) == (ErrorCodes.NO_ERROR, stream_id)
    with trio.fail_after(60):
        await served.rest(http1.stream)
        await served.rest(http2.stream)
        await served.server.drain(0)
    assert served.server.statistics().open_connections == 0


async def test_drain_cuts_endless_answers(wire: Any) -> None:
    watch = Watch()
    served = await wire(watch.app)
    client = await served.http1()
    await client.send("GET", "/watch")
    await client.event()
    with trio.fail_after(60):
        await served.server.drain(0.05)
    assert watch.ended.is_set()
    assert served.server.statistics().open_connections == 0


async def test_a_body_of_several_records_needs_no_task(wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[object] = []
    start_task = Connection.start_task

    def noted(self: Connection, task: Any, *args: object) -> None:
        tasks.append(task)
        start_task(self, task, *args)

    monkeypatch.setattr(Connection, "start_task", noted)
    served = await wire(echo)
    records = [b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 30000\r\n\r\n", *[b"x" * 3000] * 10]
    answer = await trio.to_thread.run_sync(ask_by_records, served, records)
    assert answer.endswith(b"\r\n\r\n" + b"x" * 30_000)
    assert not tasks


def ask_by_records(served: Any, records: list[bytes]) -> bytes:
    """Send TLS records all at once, and return the answer, whose body is as long as that of the request."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = served.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", served.server.port)) as tcp:
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                tcp.sendall(outgoing.read())
                incoming.write(tcp.recv(MIB))
        for record in records:
            tls.write(record)
        tcp.sendall(outgoing.read())
        answer = b""
        while len(answer.partition(b"\r\n\r\n")[2]) < sum(map(len, records[1:])):
            try:
                answer += tls.read(MIB)
            except ssl.SSLWantReadError:
                incoming.write(tcp.recv(MIB))
    return answer


async def test_a_request_can_be_the_last_of_its_connection(wire: Any) -> None:
    """HTTP/2 answers it, sends GOAWAY, and ends; HTTP/1.1 goes on."""

    async def leave(request: Request) -> Response:
        request.exchange.leave()
        request.exchange.leave()
        return Response(200, [], b"last")

    served = await wire(leave)
    http1, http2 = await served.http1(), await served.http2()
    for _ in range(2):
        await http1.send("GET", "/")
        assert (await http1.answer()).status == 200
    stream_id = await http2.send("GET", "/")
    seen = await http2.until(lambda event: event is None)
    goaways = [event for event in seen if isinstance(event, h2.events.ConnectionTerminated)]
    assert [(each.error_code, each.last_stream_id) for each in goaways] == [(ErrorCodes.NO_ERROR, stream_id)]
    data = [event.data for event in seen if isinstance(event, h2.events.DataReceived)]
    assert data == [b"last"]
