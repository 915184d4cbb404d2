"""Kept connections against servers that answer byte by byte, half, twice, or not as HTTP says."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.http.outgoing.keep_alive import BadAnswer, Deadlines, request_head
from kubechronicle.http.outgoing.pools import Connections

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LIMIT = 100_000


class Peer:
    """A TLS server that sends ``pieces`` after each request, and then ends the connection if ``ends``."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.pieces: Sequence[bytes] = [OK]
        self.ends = False
        self.connections = 0
        self.open = 0
        self.port = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, self.context, server_side=True, https_compatible=True)
        self.connections += 1
        self.open += 1
        try:
            while await tls.receive_some():
                for piece in self.pieces:
                    await tls.send_all(piece)
                if self.ends:
                    break
        except trio.BrokenResourceError:
            pass
        finally:
            self.open -= 1
            await trio.aclose_forcefully(tls)


@pytest.fixture
async def peer(nursery: trio.Nursery, server_files: tuple[Path, Path]) -> Peer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*server_files)
    made = Peer(context)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.port = listeners[0].socket.getsockname()[1]
    nursery.start_soon(trio.serve_listeners, made.handle, listeners)
    return made


def connections(
    nursery: trio.Nursery, port: int, authority: Any, *, idle: float = 60, deadlines: Deadlines | None = None
) -> Connections:
    return Connections(
        "127.0.0.1",
        port,
        ssl.create_default_context(cafile=str(authority.file)),
        server_name="localhost",
        idle=idle,
        limit=LIMIT,
        start=nursery.start_soon,
        deadlines=deadlines,
    )


@pytest.fixture
async def kept(nursery: trio.Nursery, peer: Peer, authority: Any) -> AsyncIterator[Connections]:
    made = connections(nursery, peer.port, authority)
    yield made
    made.close()


async def ask(kept: Connections) -> tuple[int, bytes]:
    with trio.fail_after(60):
        head = request_head("POST", "/", {"host": "localhost"})
        assert head is not None
        answer = await kept.send(head, b"{}", limit=LIMIT)
    return answer.status, answer.body


@pytest.mark.parametrize(
    "pieces",
    [
        [OK],
        [OK[:3], OK[3:20], OK[20:-1], OK[-1:]],
        [CHUNKED, b"1\r\n{\r\n1;", b"a=b\r\n}\r\n0\r\nx: y\r\n\r\n"],
        [b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK],
        [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncont", b"ent-length: 2\r\n", b"\r\n{}"],
        [b"HTTP/1.1 102 Processing\r\n\r\n"] * 5 + [OK],
    ],
)
async def test_a_complete_answer_keeps_the_connection(kept: Connections, peer: Peer, pieces: list[bytes]) -> None:
    peer.pieces = pieces
    assert [await ask(kept) for _ in range(3)] == [(200, b"{}")] * 3
    assert peer.connections == 1


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([b"HTTP/1.0 200 OK\r\n\r\n", b"{", b"}"], True),
        ([b"HTTP/1.1 200 OK\r\n\r\n{}"], True),
        ([b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"], False),
        ([OK.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n")], False),
        ([OK + b"HTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nbad"], False),
        ([OK + b"garbage"], False),
    ],
)
async def test_an_answer_that_ends_the_connection(
    kept: Connections, peer: Peer, pieces: list[bytes], ends: bool
) -> None:
    """The answer is used. An answer that nobody asked for is never taken for that of the next request."""
    peer.pieces, peer.ends = pieces, ends
    assert [await ask(kept) for _ in range(2)] == [(200, b"{}")] * 2
    assert peer.connections == 2


@pytest.mark.parametrize(
    ("pieces", "why", "broken"),
    [
        ([], "disconnected", True),
        ([b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n"], "unexpected EOF", True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"], "unexpected EOF", True),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}"], "unexpected EOF", True),
        ([CHUNKED + b"2\r\n{}\r\n"], "unexpected EOF", True),
        ([CHUNKED + b"zz\r\n"], "malformed", False),
        ([b"\x00\xff" * 100], "malformed", False),
        ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], "protocol", False),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n", *[b"x" * 16384] * 6400], "more than", False),
        ([CHUNKED, *[b"4000\r\n" + b"x" * 16384 + b"\r\n"] * 6400], "more than", False),
        ([b"HTTP/1.1 200 OK\r\nx: ", *[b"y" * 16384] * 6400], "too long", False),
        ([b"HTTP/1.1 200 ", *[b"y" * 16384] * 6400], "too long", False),
        ([CHUNKED + b"0\r\nx: ", *[b"y" * 16384] * 6400], "too long", False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 500] * 1000, "too long", False),
    ],
)
async def test_answers_that_cannot_be_used(
    kept: Connections, peer: Peer, pieces: list[bytes], why: str, broken: bool
) -> None:
    peer.pieces, peer.ends = pieces, True
    with pytest.raises(BadAnswer, match=why) as caught:
        await ask(kept)
    assert caught.value.broken == broken
    peer.pieces, peer.ends = [OK], False
    assert await ask(kept) == (200, b"{}")


async def test_a_late_answer_ends_its_connection(nursery: trio.Nursery, peer: Peer, authority: Any) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    kept = connections(nursery, peer.port, authority, deadlines=deadlines)
    head = request_head("POST", "/", {"host": "localhost"})
    assert head is not None
    await kept.send(head, b"{}", limit=LIMIT)
    peer.pieces = [OK[:20]]
    connection = kept.take()
    assert connection is not None
    with pytest.raises(BadAnswer) as caught:
        await connection.exchange(head, b"{}", limit=LIMIT, deadline=trio.current_time() + 0.05)
    assert caught.value.late
    assert kept.take() is None
    peer.pieces = [OK]
    assert (await kept.send(head, b"{}", limit=LIMIT)).status == 200
    assert not len(deadlines)
    kept.close()


async def test_a_connection_that_ended_between_two_requests_is_not_used(kept: Connections, peer: Peer) -> None:
    peer.ends = True
    for _ in range(5):
        assert await ask(kept) == (200, b"{}")
        while peer.open:
            await trio.lowlevel.checkpoint()
    assert peer.connections == 5


async def test_the_connections_of_a_burst_are_closed_when_nobody_needs_them(
    nursery: trio.Nursery, peer: Peer, authority: Any
) -> None:
    kept = connections(nursery, peer.port, authority, idle=0)
    async with trio.open_nursery() as burst:
        for _ in range(20):
            burst.start_soon(ask, kept)
    with trio.fail_after(60):
        while peer.open:
            await trio.lowlevel.checkpoint()
    kept.close()


async def test_a_cancelled_request_closes_its_connection(kept: Connections, peer: Peer) -> None:
    peer.pieces = [b"HTTP/1.1 200 OK\r\n"]
    with trio.move_on_after(0.05):
        await ask(kept)
    peer.pieces = [OK]
    assert await ask(kept) == (200, b"{}")
    assert peer.connections == 2
