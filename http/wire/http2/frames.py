"""Frames of HTTP/2 (RFC 9113 §4, §6): their layout in both directions, and the errors of a connection.

Lives here: bytes to frames and frames to bytes. Not here: the meaning of a frame (connection.py), the content of a
header block (headers.py).

Invariant: at most one frame of the maximum size is buffered, because its length is checked before the rest arrives.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_SIZE: Final = 16_384
"""The minimum of SETTINGS_MAX_FRAME_SIZE, and this server's value."""
MAX_FRAME_SIZE: Final = (1 << 24) - 1
SETTINGS_OF_FRAME: Final = 100
"""Maximum settings of one frame, as in Go's server. RFC 9113 defines six."""
DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = (1 << 31) - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

_HEAD: Final = struct.Struct(">HBBBL")
_HEAD_SIZE: Final = _HEAD.size
_SETTING: Final = struct.Struct(">HL")
_ID: Final = 0x7FFFFFFF


class ErrorCode(IntEnum):
    """RFC 9113 §7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC


class Setting(IntEnum):
    """RFC 9113 §6.5.2."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class ConnectionFailed(Exception):
    """The peer has made a connection error (RFC 9113 §5.4.1)."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class FrameReader:
    """Turns the bytes of a connection into frames: (type, flags, stream, payload). Raises ConnectionFailed.

    ``begun``: no preface comes first, as the peer is a server.
    """

    def __init__(self, *, begun: bool = False) -> None:
        self._buffered: list[bytes] = []
        self._size = 0
        self._needed = _HEAD_SIZE if begun else len(PREFACE)
        self._begun = begun

    @property
    def begun(self) -> bool:
        """True when the preface has arrived."""
        return self._begun

    def feed(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        if self._buffered:
            self._buffered.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data = b"".join(self._buffered)
            self._buffered = []
        at, size = 0, len(data)
        if not self._begun:
            if data[: len(PREFACE)] != PREFACE[:size]:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
            if size < len(PREFACE):
                self._keep(data, len(PREFACE))
                return
            self._begun, at = True, len(PREFACE)
        unpack, last = _HEAD.unpack_from, size - _HEAD_SIZE
        while at <= last:
            long, short, kind, flags, stream_id = unpack(data, at)
            length = long << 8 | short
            if length > FRAME_SIZE:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
            start = at + _HEAD_SIZE
            end = start + length
            if end > size:
                self._keep(data[at:], _HEAD_SIZE + length)
                return
            at = end
            yield kind, flags, stream_id & _ID, data[start:end]
        if at < size:
            self._keep(data[at:], _HEAD_SIZE)

    def _keep(self, data: bytes, needed: int) -> None:
        self._buffered, self._size, self._needed = [data], len(data), needed


def head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return head(len(payload), kind, flags, stream_id) + payload


def header_frames(stream_id: int, block: bytes, size: int, *, end: bool) -> list[bytes]:
    """Return a HEADERS frame, and CONTINUATION frames for a block longer than ``size``. ``end``: the stream ends."""
    flags = END_STREAM if end else 0
    if len(block) <= size:
        return [head(len(block), HEADERS, flags | END_HEADERS, stream_id), block]
    parts = [frame(HEADERS, flags, stream_id, block[:size])]
    for start in range(size, len(block), size):
        part = block[start : start + size]
        last = END_HEADERS if start + size >= len(block) else 0
        parts.append(frame(CONTINUATION, last, stream_id, part))
    return parts


def request(stream_id: int, block: bytes, body: bytes) -> bytes:
    """Return the frames of a whole request. ``body``: at most FRAME_SIZE bytes."""
    long, size = len(block), len(body)
    if not size or long > FRAME_SIZE:
        parts = header_frames(stream_id, block, FRAME_SIZE, end=not size)
        return b"".join(parts) + (frame(DATA, END_STREAM, stream_id, body) if size else b"")
    return b"%b%b%b%b" % (
        _HEAD.pack(long >> 8, long & 0xFF, HEADERS, END_HEADERS, stream_id),
        block,
        _HEAD.pack(size >> 8, size & 0xFF, DATA, END_STREAM, stream_id),
        body,
    )


def settings_frame(values: dict[Setting, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> dict[int, int]:
    """Return the settings of a frame. Raises ConnectionFailed, as Go's server does, if one comes twice or all are many:
    each may change every stream."""
    number, odd = divmod(len(payload), _SETTING.size)
    if odd:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
    if number > SETTINGS_OF_FRAME:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
    values: dict[int, int] = dict(_SETTING.iter_unpack(payload))
    if len(values) < number:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
    return values


def number_frame(kind: int, stream_id: int, value: int) -> bytes:
    """Return an RST_STREAM with its code, or a WINDOW_UPDATE with its increment."""
    return frame(kind, 0, stream_id, value.to_bytes(4, "big"))


def read_number(payload: bytes) -> int:
    """Return the number at the beginning of a payload. Raises ConnectionFailed: it is too short."""
    if len(payload) < 4:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
    return int.from_bytes(payload[:4], "big")


def error_name(code: int) -> str:
    """Return the name of an error code of the peer, also of an unknown one."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"unknown error code 0x{code:x}"


def goaway_frame(last_stream: int, code: ErrorCode) -> bytes:
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big"))


def without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR)
    padding = payload[0]
    if padding >= len(payload):
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
    return payload[1 : len(payload) - padding]
