"""WebSocket frames of clients, and a server's."""

from __future__ import annotations

import pytest

from kubechronicle.http.streaming import websocket_frames as ws

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


def joined(events: list[ws.Event]) -> list[tuple[bytes, bool]]:
    """Return the messages in events as (data, text)."""
    messages, data = [], b""
    for event in events:
        if isinstance(event, ws.Part):
            data = event.data if event.first else data + event.data
            if event.last:
                messages.append((data, event.text))
    return messages


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000, 10**6])
def test_messages_are_the_same_in_any_cut(step: int) -> None:
    long = bytes(range(256)) * 300
    sent = [masked(2, b"\x00hi"), masked(1, b""), masked(2, long), masked(2, long[:200])]
    sent += [masked(2, b"ab", final=False)]
    sent += [masked(9, b"p"), masked(0, long[:200], final=False), masked(0, b"z"), masked(8, b"\x03\xe8")]
    data, reader, events = b"".join(sent), ws.WebSocketFrameReader(), []
    for start in range(0, len(data), step):
        events += reader.feed(data[start : start + step])
    assert joined(events) == [
        (b"\x00hi", False), (b"", True), (long, False), (long[:200], False), (b"ab" + long[:200] + b"z", False),
    ]  # fmt: skip
    assert [event for event in events if not isinstance(event, ws.Part)] == [ws.Ping(b"p"), ws.Close(b"\x03\xe8")]


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
    ],
)
def test_a_broken_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(ws.FrameError):
        list(ws.WebSocketFrameReader().feed(data))


@pytest.mark.parametrize("size", [0, 124, 125, 126, 65534, 65535, 65536])
def test_a_server_frame_has_the_shortest_length(size: int) -> None:
    frame = ws.encode(ws.BINARY, b"x" * size, b"\x01")
    extra = 2 if size + 1 <= 125 else 4 if size + 1 < 1 << 16 else 10
    assert len(frame) == extra + 1 + size
    assert frame[0] == 0x82
    assert frame[extra:] == b"\x01" + b"x" * size
