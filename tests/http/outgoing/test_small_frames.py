"""Very many frames and messages without contents, from a server of gRPC: no pass of the event loop is long."""

from __future__ import annotations

import socket

import pytest
import trio
from hpack import Encoder
from stalls.longest_pass import passes_below

from kubechronicle.http.outgoing.grpc_stream import MAX_MESSAGE, GrpcStream
from kubechronicle.http.outgoing.keep_alive import Deadlines
from kubechronicle.http.outgoing.multiplexed import Multiplexed
from kubechronicle.http.wire.tls import TLSStream

LONGEST = 0.02
"""Seconds of CPU of a pass. One read of 64 KiB may have 7,000 frames, each of which is work."""
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8


def frame(kind: int, payload: bytes, *, stream: int = 0, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def head() -> bytes:
    block = Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])
    return frame(SETTINGS, b"") + frame(HEADERS, block, stream=1, flags=4)


@pytest.mark.parametrize(
    ("frames", "messages"),
    {
        "empty parts": (frame(DATA, b"", stream=1) * 20_000, 0),
        "pings": (frame(PING, bytes(8), flags=1) * 7_000, 0),
        "windows": (frame(WINDOW_UPDATE, (1).to_bytes(4, "big")) * 7_000, 0),
        "messages of one byte": (frame(DATA, b"\0\0\0\0\1a", stream=1) * 20_000, 20_000),
        "empty messages": (frame(DATA, bytes(5 * 3_000), stream=1) * 20, 60_000),
    }.values(),
)
async def test_small_frames(frames: bytes, messages: int) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    server = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    connection = Multiplexed(TLSStream.wrap_plain(ours), limit=MAX_MESSAGE, deadlines=Deadlines())
    async with server, trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        stream = GrpcStream(connection)
        connection.open(stream, Encoder().encode([(":method", "POST"), (":path", "/")]))
        await server.send_all(head())
        with passes_below(LONGEST):
            nursery.start_soon(server.send_all, frames + frame(DATA, b"\0\0\0\0\4last", stream=1))
            received = 0
            while await stream.receive() != b"last":
                received += 1
        assert received == messages
        nursery.cancel_scope.cancel()
