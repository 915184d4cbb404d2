"""SPDY/3.1 frames, as Kubernetes uses them between a client, the API server and a kubelet, without I/O.

Lives here: the frames of streams, their header blocks, and a decoder that passes data on in the parts in which it
arrives. Not here: the streams of a session (remote_command.py).

Kubernetes' library (moby/spdystream) has no flow control: it ignores WINDOW_UPDATE and sends none. A reader that does
not read its connection is the only back pressure. It closes a stream at the FIN of each side, or at RST_STREAM.

    control frame: 1 | version 3 (15 bits) | type (16) | flags (8) | length (24) | payload
    data frame:    0 | stream (31)                     | flags (8) | length (24) | payload
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

# -- spdy dictionary ---------------------------------------------------------------------------------------------------
#
# The dictionary that SPDY/3 compresses header blocks with (SPDY/3.1 §2.6.10.1), fixed by that draft.
#
# It begins with words, each behind its length in four bytes, and ends with plain text.

_WORDS: Final = (
    "options | head | post | put | delete | trace | "
    "accept | accept-charset | accept-encoding | accept-language | accept-ranges | age | "
    "allow | authorization | cache-control | connection | content-base | content-encoding | "
    "content-language | content-length | content-location | content-md5 | content-range | content-type | "
    "date | etag | expect | expires | from | host | "
    "if-match | if-modified-since | if-none-match | if-range | if-unmodified-since | last-modified | "
    "location | max-forwards | pragma | proxy-authenticate | proxy-authorization | range | "
    "referer | retry-after | server | te | trailer | transfer-encoding | "
    "upgrade | user-agent | vary | via | warning | www-authenticate | "
    "method | get | status | 200 OK | version | HTTP/1.1 | "
    "url | public | set-cookie | keep-alive | origin"
)
_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authori"
    "tative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not "
    "Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug S"
    "ept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag"
    "e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(len(word).to_bytes(4, "big") + word.encode() for word in _WORDS.split(" | ")) + _TEXT.encode()
)


# -- spdy --------------------------------------------------------------------------------------------------------------

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
VERSION: Final = 3
FIN: Final = 0x01
CANCEL: Final = 5
"""Status of RST_STREAM: the sender no longer wants the stream (§2.6.3)."""
MAX_CONTROL: Final = 64 * 1024
"""Bytes of a control frame. Header blocks of Kubernetes have a few dozen."""
MAX_HEADERS: Final = 4 * 1024
"""Bytes of a header block once it is inflated."""
MAX_DATA: Final = (1 << 24) - 1

HEAD = struct.Struct("!II")


class SpdyError(Exception):
    """The peer broke the protocol. The connection must be closed."""


class Data(NamedTuple):
    """Bytes of a stream, perhaps a part of a frame. ``fin``: the peer sends no more on this stream."""

    stream: int
    data: bytes | memoryview
    fin: bool


class Control(NamedTuple):
    """A control frame with its undecoded payload."""

    kind: int
    flags: int
    payload: bytes

    @property
    def stream(self) -> int:
        """The stream, or the id of a ping: the first field of every frame of SPDY but SETTINGS."""
        return int.from_bytes(self.payload[:4], "big") & 0x7FFFFFFF


Event: TypeAlias = Data | Control


class SpdyFrameReader:
    """The decoder of one peer's frames."""

    def __init__(self) -> None:
        self._pending = b""
        self._stream = 0
        self._left = 0
        self._fin = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events in ``data``. Raises SpdyError after the events before the error."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        view, position, size = memoryview(data), 0, len(data)
        while position < size:
            if self._left:
                end = min(size, position + self._left)
                self._left -= end - position
                yield Data(self._stream, view[position:end], self._fin and not self._left)
                position = end
                continue
            if size - position < 8:
                break
            first, second = HEAD.unpack_from(data, position)
            flags, length = second >> 24, second & 0xFFFFFF
            if not first >> 31:
                position += 8
                self._stream, self._left, self._fin = first, length, bool(flags & FIN)
                if not length:
                    yield Data(first, b"", self._fin)
                continue
            if (first >> 16) & 0x7FFF != VERSION or length > MAX_CONTROL:
                raise SpdyError("no frame of SPDY/3.1, or too long")
            end = position + 8 + length
            if end > size:
                break
            kind = first & 0xFFFF
            if length < 4:
                raise SpdyError(f"a control frame of type {kind} is too short")
            yield Control(kind, flags, data[position + 8 : end])
            position = end
        self._pending = data[position:]


class HeaderCompressor:
    """The compressor of one connection's header blocks, whose state goes on from block to block (§2.6.10)."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(9, zdict=DICTIONARY)

    def block(self, headers: Mapping[str, str]) -> bytes:
        """Return a compressed block. Names are sent in lower case, as the draft demands."""
        parts = [len(headers).to_bytes(4, "big")]
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                parts += len(text).to_bytes(4, "big"), text
        return self._zlib.compress(b"".join(parts)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class HeaderDecompressor:
    """The decompressor of one connection's header blocks."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def headers(self, block: bytes) -> dict[str, str]:
        """Return the names and values of a block. Raises SpdyError for a broken or huge one."""
        try:
            plain = self._zlib.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"a header block is not compressed with zlib: {error}") from None
        if self._zlib.unconsumed_tail:
            raise SpdyError("a header block is too long")
        texts, position = [], 4
        for _ in range(2 * min(int.from_bytes(plain[:4], "big"), MAX_HEADERS)):
            end = position + 4 + int.from_bytes(plain[position : position + 4], "big")
            if end > len(plain) or end < position + 4:
                raise SpdyError("a header block ends in the middle of a field")
            texts.append(plain[position + 4 : end].decode("latin-1"))
            position = end
        return dict(zip(texts[::2], texts[1::2], strict=True))


def control(kind: int, payload: bytes, flags: int = 0) -> bytes:
    """Return a control frame."""
    return HEAD.pack(1 << 31 | VERSION << 16 | kind, flags << 24 | len(payload)) + payload


def syn_stream(stream: int, block: bytes) -> bytes:
    """Return the frame that opens a stream, with a header block. Priority 0, no associated stream, slot 0."""
    return control(SYN_STREAM, struct.pack("!IIH", stream, 0, 0) + block)


def syn_reply(stream: int, block: bytes) -> bytes:
    """Return the frame that accepts the peer's stream."""
    return control(SYN_REPLY, stream.to_bytes(4, "big") + block)


def rst_stream(stream: int, reason: int = CANCEL) -> bytes:
    """Return the frame that ends a stream in both directions."""
    return control(RST_STREAM, struct.pack("!II", stream, reason))


def ping(number: int) -> bytes:
    """Return a ping, or the answer to one, which has the same number."""
    return control(PING, number.to_bytes(4, "big"))


def data_frame(stream: int, data: bytes, *, fin: bool = False) -> bytes:
    """Return a frame with at most MAX_DATA bytes. ``fin``: no more is sent on this stream."""
    return data_head(stream, len(data), fin=fin) + data


def data_head(stream: int, size: int, *, fin: bool = False) -> bytes:
    """Return the header of a data frame."""
    return HEAD.pack(stream, (FIN if fin else 0) << 24 | size)
