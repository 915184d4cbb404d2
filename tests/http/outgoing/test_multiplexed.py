"""HTTP/2 connections to servers that answer in parts, late, too much, or not as HTTP says."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kubechronicle.http.outgoing import multiplexed
from kubechronicle.http.outgoing.keep_alive import BadAnswer, Deadlines, PreparedHead, request_head
from kubechronicle.http.outgoing.pools import Connections
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import ErrorCode, FrameReader, Setting, frame, number_frame
from kubechronicle.http.wire.http2.headers import BlockDecoder, encode_answer

LIMIT = 100_000
ENDS = frames.END_HEADERS
PATIENCE = 60
Script = Callable[[int], Sequence[bytes]]


def head_frame(
    number: int, status: int = 200, *, flags: int = ENDS, fields: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    return frame(frames.HEADERS, flags, number, encode_answer(status, fields))


def data_frame(number: int, data: bytes, *, end: bool = True) -> bytes:
    return frame(frames.DATA, frames.END_STREAM if end else 0, number, data)


def ok(number: int) -> list[bytes]:
    return [head_frame(number) + data_frame(number, b"{}")]


def goaway(last: int) -> bytes:
    return frames.goaway_frame(last, ErrorCode.NO_ERROR)


class Peer:
    """A server that speaks HTTP/2. For each request it sends what ``script`` returns; then it ends if ``ends``.

    ``settings``: its own. ``bodies``: those received, by connection and stream. ``resets``: the streams given up.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.script: Script = ok
        self.settings: dict[Setting, int] = {}
        self.ends = False
        self.connections = self.open = self.port = 0
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.fields: list[list[tuple[str, str]]] = []
        self.resets: list[int] = []
        self.streams: list[trio.SSLStream[trio.SocketStream]] = []

    async def handle(self, stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, self.context, server_side=True, https_compatible=True)
        self.connections += 1
        self.open += 1
        self.streams.append(tls)
        here, reader, decoder = self.connections, FrameReader(), BlockDecoder(1 << 20)
        try:
            await tls.send_all(frames.settings_frame(self.settings))
            while data := await tls.receive_some():
                for kind, flags, number, payload in reader.feed(data):
                    if kind == frames.HEADERS:
                        self.fields.append([entry[0] for entry in decoder.fields(payload)])
                        self.bodies[here, number] = b""
                    elif kind == frames.DATA:
                        self.bodies[here, number] += payload
                    elif kind == frames.RST_STREAM:
                        self.resets.append(number)
                    if kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM:
                        for piece in self.script(number):
                            await tls.send_all(piece)
                        if self.ends:
                            return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open -= 1
            await trio.aclose_forcefully(tls)


@pytest.fixture
async def peer(nursery: trio.Nursery, server_files: tuple[Path, Path]) -> Peer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*server_files)
    context.set_alpn_protocols(["h2"])
    made = Peer(context)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.port = listeners[0].socket.getsockname()[1]
    nursery.start_soon(trio.serve_listeners, made.handle, listeners)
    return made


@pytest.fixture
async def kept(nursery: trio.Nursery, peer: Peer, authority: Any) -> AsyncIterator[Connections]:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    made = Connections(
        "127.0.0.1",
        peer.port,
        ssl.create_default_context(cafile=str(authority.file)),
        server_name="localhost",
        idle=60,
        limit=LIMIT,
        start=nursery.start_soon,
        deadlines=deadlines,
    )
    yield made
    made.close()


def head() -> PreparedHead:
    found = request_head("POST", "/review?timeout=1s", {"host": "localhost:1", "accept": "x/y"})
    assert found is not None
    return found


async def ask(kept: Connections, body: bytes = b"[]") -> tuple[int, bytes]:
    with trio.fail_after(PATIENCE):
        answer = await kept.send(head(), body, limit=LIMIT)
    return answer.status, answer.body


async def ask_many(kept: Connections, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []

    async def one() -> None:
        found.append(await ask(kept))

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)
    return found


async def test_a_request_as_the_server_sees_it(kept: Connections, peer: Peer) -> None:
    assert await ask(kept) == await ask(kept) == (200, b"{}")
    expected = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "localhost:1"),
        (":path", "/review?timeout=1s"),
        ("accept", "x/y"),
        ("content-length", "2"),
    ]
    assert peer.fields == [expected, expected]
    assert peer.bodies == {(1, 1): b"[]", (1, 3): b"[]"}
    assert not peer.resets


async def test_requests_share_one_connection_and_its_answers_come_in_any_order(kept: Connections, peer: Peer) -> None:
    held: list[int] = []

    def in_turn(number: int) -> list[bytes]:
        held.append(number)
        if len(held) < 20:
            return []
        heads = [head_frame(each) for each in held]
        return [b"".join([*heads, *(data_frame(each, b"%d" % each) for each in reversed(held))])]

    peer.script = in_turn
    assert sorted(await ask_many(kept, 20)) == sorted((200, b"%d" % number) for number in range(1, 41, 2))
    assert peer.connections == 1


async def test_a_server_with_few_streams_gets_more_connections(kept: Connections, peer: Peer) -> None:
    peer.settings = {Setting.MAX_CONCURRENT_STREAMS: 2}
    await ask(kept)
    assert await ask_many(kept, 12) == [(200, b"{}")] * 12
    assert 1 < peer.connections <= 6


@pytest.mark.parametrize("settings", [{}, {Setting.INITIAL_WINDOW_SIZE: 10}])
async def test_large_bodies_wait_for_the_windows(kept: Connections, peer: Peer, settings: dict[Setting, int]) -> None:
    peer.settings = settings
    await ask(kept)
    body = b"0123456789" * 20_000
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask, kept, body)
        with trio.fail_after(PATIENCE):
            while len(peer.bodies) < 4:
                await trio.lowlevel.checkpoint()
        for _ in range(12):
            widened = [number_frame(frames.WINDOW_UPDATE, each, 60_000) for each in (0, 0, 0, 3, 5, 7)]
            await peer.streams[0].send_all(b"".join(widened))
    assert [peer.bodies[1, number] for number in (3, 5, 7)] == [body] * 3


@pytest.mark.parametrize(
    "script",
    [
        lambda n: [b"%c" % byte for byte in ok(n)[0]],
        lambda n: [head_frame(n, 103), head_frame(n, 100), *ok(n)],
        lambda n: [head_frame(n), data_frame(n, b"{", end=False), data_frame(n, b"", end=False), data_frame(n, b"}")],
        lambda n: [head_frame(n), data_frame(n, b"{}", end=False), head_frame(n, 200, flags=ENDS | 1)],
        lambda n: [head_frame(n), frame(frames.DATA, frames.PADDED | 1, n, b"\3{}\0\0\0")],
        lambda n: [frame(99, 0, 0, b"x"), frame(frames.PING, 0, 0, b"12345678"), *ok(n)],
        lambda n: [frame(frames.HEADERS, 0, n), frame(frames.CONTINUATION, ENDS, n, b"\x88"), data_frame(n, b"{}")],
        lambda n: [*ok(n), number_frame(frames.RST_STREAM, n, ErrorCode.NO_ERROR)],
        lambda n: [*ok(n), *ok(n), data_frame(n, b"more")],
    ],
)
async def test_answers_that_can_be_used(kept: Connections, peer: Peer, script: Script) -> None:
    peer.script = script
    assert [await ask(kept) for _ in range(3)] == [(200, b"{}")] * 3
    assert peer.connections == 1


def flood(piece: bytes, count: int) -> list[bytes]:
    return [piece * 100] * (count // 100)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (lambda n: [], "disconnected"),
        (lambda n: [head_frame(n)], "disconnected"),
        (lambda n: [head_frame(n, flags=ENDS | 1, fields=[(b"content-length", b"3")])], "unexpected EOF"),
        (lambda n: [head_frame(n, fields=[(b"content-length", b"3")]) + data_frame(n, b"{}")], "unexpected EOF"),
        (lambda n: [data_frame(n, b"{}")], "malformed"),
        (lambda n: [head_frame(n, 101)], "protocol"),
        (lambda n: [frame(frames.HEADERS, ENDS | 1, n, b"")], "malformed"),
        (lambda n: [frame(frames.HEADERS, ENDS | 1, n, b"\x88\x88")], "malformed"),
        (lambda n: [frame(frames.HEADERS, ENDS | 1, n, b"\xff\xff\xff\xff\xff\xff")], "COMPRESSION_ERROR"),
        (lambda n: [b"HTTP/1.1 400 Bad Request\r\n\r\n"], "FRAME_SIZE_ERROR"),
        (lambda n: [frame(frames.PUSH_PROMISE, ENDS, n, b"\0\0\0\2")], "PROTOCOL_ERROR"),
        (lambda n: [frame(frames.CONTINUATION, ENDS, n, b"")], "PROTOCOL_ERROR"),
        (lambda n: [frame(frames.HEADERS, 0, n, b"\x88"), frame(frames.PING, 0, 0, b"12345678")], "PROTOCOL_ERROR"),
        (lambda n: [number_frame(frames.RST_STREAM, n, ErrorCode.INTERNAL_ERROR)], "INTERNAL_ERROR"),
        (lambda n: [number_frame(frames.WINDOW_UPDATE, 0, frames.MAX_WINDOW)], "FLOW_CONTROL_ERROR"),
        (lambda n: [head_frame(n), *[data_frame(n, b"x" * 16384, end=False)] * 6400], "more than"),
        (lambda n: [head_frame(n), *flood(data_frame(n, b"", end=False), 100_000)], "too long"),
        (lambda n: flood(head_frame(n, 103), 100_000), "too long"),
        (lambda n: [frame(frames.HEADERS, 0, n), *flood(frame(frames.CONTINUATION, 0, n), 10_000)], "CALM"),
        (lambda n: [frame(frames.HEADERS, ENDS, n, b"\x88" + b"\x90" * 2000)], "too long"),
        (lambda n: flood(frame(frames.PING, 0, 0, b"12345678"), 100_000), "CALM"),
        (lambda n: flood(frames.settings_frame({}), 100_000), "CALM"),
        (lambda n: flood(frame(99, 0, 0, b""), 100_000), "CALM"),
        (lambda n: [data_frame(n + 2, b"x" * 16384, end=False)] * 6400, "CALM"),
    ],
)
async def test_answers_that_cannot_be_used(kept: Connections, peer: Peer, script: Script, why: str) -> None:
    peer.script, peer.ends = script, True
    with pytest.raises(BadAnswer, match=why):
        await ask(kept)
    peer.script, peer.ends = ok, False
    assert await ask(kept) == (200, b"{}")


async def test_after_a_bad_answer_requests_use_another_connection(kept: Connections, peer: Peer) -> None:
    """Those on their way are answered on this one."""
    peer.script = lambda n: (
        [head_frame(n)] if n == 3 else [head_frame(5) * 2, data_frame(3, b"{}")] if n == 5 else ok(n)
    )
    await ask(kept)
    found: list[tuple[int, bytes]] = []

    async def good() -> None:
        found.append(await ask(kept))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(good)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BadAnswer, match="malformed"):
            await ask(kept)
    assert found == [(200, b"{}")]
    assert await ask(kept) == (200, b"{}")
    assert peer.connections == 2
    assert peer.resets == [5]


@pytest.mark.parametrize(
    "refusal",
    [
        lambda n: [number_frame(frames.RST_STREAM, n, ErrorCode.REFUSED_STREAM)],
        lambda n: [goaway(0)],
        lambda n: [goaway(n - 2)],
    ],
)
async def test_a_request_that_was_not_taken_is_sent_again(kept: Connections, peer: Peer, refusal: Script) -> None:
    taken: list[int] = []

    def once(number: int) -> Sequence[bytes]:
        taken.append(number)
        return refusal(number) if len(taken) == 2 else ok(number)

    peer.script = once
    assert [await ask(kept) for _ in range(3)] == [(200, b"{}")] * 3
    assert len(taken) == 4


async def test_a_server_that_never_takes_a_request(kept: Connections, peer: Peer) -> None:
    peer.script = lambda n: [goaway(0)]
    with pytest.raises(BadAnswer, match="closing"):
        await ask(kept)
    assert peer.connections == 4


async def test_requests_that_a_leaving_server_has_taken_are_answered(kept: Connections, peer: Peer) -> None:
    peer.script = lambda n: [goaway(n), *ok(n)]
    assert [await ask(kept) for _ in range(2)] == [(200, b"{}")] * 2
    assert peer.connections == 2


async def late(kept: Connections, seconds: float) -> BadAnswer:
    connection = kept.take()
    assert connection is not None
    with pytest.raises(BadAnswer) as caught:
        await connection.exchange(head(), b"[]", limit=LIMIT, deadline=trio.current_time() + seconds)
    assert caught.value.late
    return caught.value


async def test_a_late_answer_is_given_up_alone(kept: Connections, peer: Peer) -> None:
    peer.script = lambda n: [head_frame(n)] if n == 3 else ok(n)
    await ask(kept)
    await late(kept, 0.05)
    assert await ask(kept) == (200, b"{}")
    assert peer.connections == 1
    assert peer.resets == [3]


async def test_a_connection_that_is_silent_is_not_used_again(
    kept: Connections, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiplexed, "SILENT", 0.01)
    await ask(kept)
    peer.script = lambda n: []
    await late(kept, 0.05)
    peer.script = ok
    assert await ask(kept) == (200, b"{}")
    assert peer.connections == 2


async def test_a_cancelled_request_leaves_the_others_alone(kept: Connections, peer: Peer) -> None:
    peer.script = lambda n: [] if n == 3 else ok(n)
    await ask(kept)
    with trio.move_on_after(0.02):
        await ask(kept)
    assert await ask(kept) == (200, b"{}")
    assert peer.connections == 1
    assert peer.resets == [3]


async def test_a_connection_that_ended_between_two_requests_is_not_used(kept: Connections, peer: Peer) -> None:
    peer.ends = True
    for _ in range(5):
        assert await ask(kept) == (200, b"{}")
        with trio.fail_after(PATIENCE):
            while peer.open:
                await trio.lowlevel.checkpoint()
    assert peer.connections == 5


async def test_closing_ends_requests_on_their_way(kept: Connections, peer: Peer) -> None:
    peer.script = lambda n: []
    failures: list[BadAnswer] = []

    async def fail() -> None:
        with pytest.raises(BadAnswer) as caught:
            await ask(kept)
        failures.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(fail)
        with trio.fail_after(PATIENCE):
            while len(peer.bodies) < 3:
                await trio.lowlevel.checkpoint()
        kept.close()
    assert [failure.broken for failure in failures] == [True] * 3


async def test_a_server_that_does_not_read_is_left(
    kept: Connections, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pings that it sends meanwhile are not answered without bound."""
    monkeypatch.setattr(multiplexed, "WAITING", 100)
    monkeypatch.setattr(multiplexed, "SILENT", 0.01)
    stop = trio.Event()

    async def deaf(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, peer.context, server_side=True, https_compatible=True)
        await tls.send_all(frames.settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 24}))
        await stop.wait()
        await trio.aclose_forcefully(tls)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, deaf, listeners)
        kept._place = ("127.0.0.1", listeners[0].socket.getsockname()[1])
        with trio.move_on_after(0.3) as scope:
            await kept.send(head(), b"x" * 20_000_000, limit=LIMIT)
        assert scope.cancelled_caught
        await late(kept, 0.05)
        kept._place = ("127.0.0.1", peer.port)
        assert await ask(kept) == (200, b"{}")
        stop.set()
        nursery.cancel_scope.cancel()
