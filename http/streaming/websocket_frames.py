"""WebSocket frames (RFC 6455) as a server receives and sends them, without I/O.

Lives here: the handshake's answer, the decoder of a client's frames, the encoder of a server's. Not here: channels
(translation.py), sockets. The conversations of watches have another face (http/wire/websocket/): they are few bytes,
while sessions of exec and port-forward are many. So a message is passed on in the parts in which it arrives, and
nothing is kept of it but an incomplete header.

    bytes → feed → [Part(data, first, last), Part, Ping, Pong, Close]
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, UNSUPPORTED_DATA, POLICY_VIOLATION = 1000, 1002, 1003, 1008
MAX_CONTROL: Final = 125
MAX_HEADER: Final = 14
_WHOLE: Final = 0x80 | BINARY  # the first byte of a binary message of one frame
_MEDIUM, _LARGE = struct.Struct("!BBH"), struct.Struct("!BBQ")


class Part(NamedTuple):
    """A piece of a message. ``first`` and ``last`` tell where the message begins and ends; ``text``: its kind."""

    data: bytes
    first: bool
    last: bool
    text: bool


class Ping(NamedTuple):
    """The peer's ping, which is answered by a pong with the same data."""

    data: bytes


class Pong(NamedTuple):
    """The peer's pong. It is an event because reading it is work."""

    data: bytes


class Close(NamedTuple):
    """The peer's closing frame; ``data`` is its code and reason."""

    data: bytes


Event: TypeAlias = Part | Ping | Pong | Close
_CONTROLS: Final[dict[int, type[Ping | Pong | Close]]] = {PING: Ping, PONG: Pong, CLOSE: Close}


class FrameError(Exception):
    """The client broke the protocol. The connection must be closed with ``code`` (RFC 6455 §7.4.1)."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


def accept_key(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept for a client's key (RFC 6455 §4.2.2).

    >>> accept_key("dGhlIHNhbXBsZSBub25jZQ==")
    's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
    """
    return base64.b64encode(hashlib.sha1((key + GUID).encode(), usedforsecurity=False).digest()).decode()


def mask_remover() -> Callable[[bytes | memoryview, bytes], bytes]:
    """Return the function that removes a mask (or applies one) at some gigabytes per second."""
    # Imported with the first session: it takes 10 ms, and most servers carry none.
    try:
        from websockets.speedups import apply_mask
    except ImportError:  # a platform for which websockets has no wheel
        from websockets.utils import apply_mask
    return apply_mask


def encode_head(kind: int, size: int) -> bytes:
    """Return the header of one whole message of a server, with ``size`` bytes."""
    if size <= MAX_CONTROL:
        return bytes((0x80 | kind, size))
    if size < 1 << 16:
        return _MEDIUM.pack(0x80 | kind, 126, size)
    return _LARGE.pack(0x80 | kind, 127, size)


def encode(kind: int, data: bytes, prefix: bytes = b"") -> bytes:
    """Return one whole message of a server: a frame with ``prefix`` and ``data``."""
    return b"".join((encode_head(kind, len(data) + len(prefix)), prefix, data))


def encode_close(code: int, reason: str = "") -> bytes:
    """Return a closing frame. A reason longer than the frame allows is cut."""
    return encode(CLOSE, code.to_bytes(2, "big") + reason.encode()[: MAX_CONTROL - 2])


def _whole(data: bytes, position: int) -> tuple[int, int, bytes]:
    """Return begin and end of the payload of a frame, and its mask; zeros if the frame is not masked or not whole.

    Port-forward sends three messages for a frame of SPDY, two of them with 4 bytes.
    """
    if len(data) - position < MAX_HEADER:
        return 0, 0, b""
    length, payload = data[position + 1] - 0x80, position + 6
    if length > MAX_CONTROL:
        payload += 2 if length == 126 else 8
        length = int.from_bytes(data[position + 2 : payload - 4], "big")
    end = payload + length
    if length < 0 or end > len(data):
        return 0, 0, b""
    return payload, end, data[payload - 4 : payload]


class WebSocketFrameReader:
    """The decoder of one client's frames."""

    def __init__(self) -> None:
        self._unmask = mask_remover()
        self._pending = b""  # an incomplete header, or an incomplete control frame
        self._left = 0  # bytes of the current data frame still to come
        self._mask = b""
        self._offset = 0  # of the next byte within the mask
        self._final = False
        self._text = False
        self._in_message = False
        self._first = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events in ``data``. Raises FrameError after the events before the error."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        view, position, size = memoryview(data), 0, len(data)
        while position < size:
            if self._left:
                end = min(size, position + self._left)
                yield self._part(view[position:end])
                position = end
                continue
            if not self._in_message and data[position] == _WHOLE:
                payload, end, mask = _whole(data, position)
                if payload:
                    yield Part(self._unmask(view[payload:end], mask), True, True, False)
                    position = end
                    continue
            head = self._header(data, position)
            if head is None:
                self._pending = data[position:]
                return
            kind, length, payload = head
            if kind >= CLOSE:
                if size - payload < length:
                    self._pending = data[position:]
                    return
                position = payload + length
                yield _CONTROLS[kind](self._unmask(data[payload:position], data[payload - 4 : payload]))
                continue
            self._begin(kind, length, data[payload - 4 : payload])
            position = payload
            if not length:
                yield self._part(view[:0])

    def _header(self, data: bytes, position: int) -> tuple[int, int, int] | None:
        """Return kind, length and the position of the payload, or None of an incomplete header."""
        if len(data) - position < 2:
            return None
        first, second = data[position], data[position + 1]
        kind, length, start = first & 0x0F, second & 0x7F, position + 2
        if first & 0x70:
            raise FrameError("reserved bits are set, but no extension was negotiated")
        if not second & 0x80:
            raise FrameError("a client's frame is not masked")
        if kind not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise FrameError(f"unknown frame type {kind}")
        if kind >= CLOSE and (length > MAX_CONTROL or not first & 0x80):
            raise FrameError("a control frame is too long or fragmented")
        extra = {126: 2, 127: 8}.get(length, 0)
        if len(data) < start + extra + 4:
            return None
        if extra:
            length = int.from_bytes(data[start : start + extra], "big")
            if length >= 1 << 63:
                raise FrameError("the length of a frame has its highest bit set")
        if kind < CLOSE:
            self._final = bool(first & 0x80)
        return kind, length, start + extra + 4

    def _begin(self, kind: int, length: int, mask: bytes) -> None:
        if (kind == CONTINUATION) != self._in_message:
            raise FrameError("a message is continued that has not begun, or begun in another one")
        self._first = kind != CONTINUATION
        if self._first:
            self._text = kind == TEXT
        self._in_message = True
        self._left, self._mask, self._offset = length, mask, 0

    def _part(self, data: memoryview) -> Part:
        turn = self._offset
        mask = self._mask[turn:] + self._mask[:turn] if turn else self._mask
        self._left -= len(data)
        self._offset = (turn + len(data)) % 4
        last = self._final and not self._left
        part = Part(self._unmask(data, mask), self._first, last, self._text)
        self._first = False
        if last:
            self._in_message = False
        return part
