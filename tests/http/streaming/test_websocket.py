"""WebSocket frames of clients, and a server's. wsproto's reading of each is compared with the fast paths."""

from __future__ import annotations

import pytest
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping

from kubechronicle.http.streaming.websocket import BINARY, Part, WebSocketFrameReader, message

MASK = b"\x01\x20\x83\xf4"


def masked(kind: int, data: bytes, *, final: bool = True, mask: bytes = MASK) -> bytes:
    head = bytes((kind | (0x80 if final else 0),))
    size = len(data)
    if size <= 125:
        head += bytes((0x80 | size,))
    elif size < 1 << 16:
        head += bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    else:
        head += bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def joined(events: list[Part | Event]) -> list[tuple[bytes, bool]]:
    """Return the messages in events as (data, text)."""
    messages, data = [], b""
    for event in events:
        if isinstance(event, Part):
            data = event.data if event.first else data + event.data
            if event.last:
                messages.append((data, event.text))
    return messages


def read(data: bytes, step: int) -> tuple[list[Part | Event], Connection]:
    connection = Connection(ConnectionType.SERVER)
    reader, events = WebSocketFrameReader(connection), list[Part | Event]()
    for start in range(0, len(data), step):
        events += [event for event, _ in reader.feed(data[start : start + step])]
    return events, connection


def slow(data: bytes) -> list[tuple[bytes, bool]]:
    """Return the messages as wsproto alone reads them."""
    connection = Connection(ConnectionType.SERVER)
    connection.receive_data(data)
    found, content = [], b""
    for event in connection.events():
        if isinstance(event, Message):
            content += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
            if event.message_finished:
                found.append((content, isinstance(event.data, str)))
                content = b""
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000, 70_000, 10**6])
def test_messages_are_those_of_wsproto_in_any_cut(step: int) -> None:
    long = bytes(range(256)) * 300
    sent = [masked(2, b"\x00hi"), masked(1, b""), masked(2, long), masked(2, long[:200]), masked(2, long[:40_000])]
    sent += [masked(2, b"ab", final=False)]
    sent += [masked(9, b"p"), masked(0, long[:200], final=False), masked(0, b"z"), masked(1, "ü€".encode())]
    sent += [masked(2, b"x") * 3, masked(8, b"\x03\xe8")]
    data = b"".join(sent)
    events, connection = read(data, step)
    assert joined(events) == slow(data)
    assert [bytes(event.payload) for event in events if isinstance(event, Ping)] == [b"p"]
    assert isinstance(events[-1], CloseConnection)
    assert connection.state is ConnectionState.REMOTE_CLOSING


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01x",  # not masked
        b"\x82\x01x" + bytes(20),
        masked(0xC2, b"x"),  # reserved bit
        masked(3, b"x"),
        masked(0, b"x"),  # continues nothing
        masked(2, b"x", final=False) + masked(2, b"y"),
        masked(2, b"x", final=False) + masked(2, b"y" * 20),
        masked(9, b"x" * 126),
        masked(9, b"x", final=False),
        b"\x82\xff" + b"\xff" * 8 + MASK,
        b"\x82\xfe\x00\x01" + MASK + b"x",  # a length that fits into the byte before
        masked(1, b"\xff"),  # no text
    ],
)
@pytest.mark.parametrize("step", [1, 10**6])
def test_a_broken_frame_is_an_error(data: bytes, step: int) -> None:
    events, connection = read(data, step)
    assert isinstance(events[-1], CloseConnection)
    assert connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("size", [0, 124, 125, 126, 65534, 65535, 65536])
def test_a_server_message_is_that_of_wsproto(size: int) -> None:
    data = b"\x01" + b"x" * size
    assert message(BINARY, b"x" * size, b"\x01") == Connection(ConnectionType.SERVER).send(BytesMessage(data=data))
