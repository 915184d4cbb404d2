"""WebSockets (RFC 6455), the server's side: the handshake, the frames, and the end of a session.

    request with Upgrade: websocket → accept → WebSocketSession → receive, send_message, close

Hypercorn checks and answers the handshake, wsproto reads and judges the frames. A message is passed on in the parts in
which it arrives, so its size has no bound, and nothing is kept of it. Extensions are not negotiated: kube-apiserver
negotiates none, and a frame does not bound the size of inflated data. Not here: channels (translation.py), sockets
(wire/takeover.py).

Two fast paths pass by wsproto: binary messages of one frame, received (`_BinaryFrame`), and whole messages, sent
(`message_head`). wsproto takes 12 µs for a short frame and copies each payload five times. Without the paths, the input
of exec and port-forward costs twice the CPU, and their output half as much again. test_websocket.py compares both ways.

Importing Hypercorn takes as long as a quarter of all other imports. So its handshake and wsproto are imported with the
first WebSocket, or when the server is ready (ops/server/replica.py).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import trio
from hypercorn.protocol.ws_stream import Handshake
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Event, Message, Ping, Pong
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from kubechronicle.api.errors import status
from kubechronicle.http.messages import SUBPROTOCOLS, ClientDisconnected, Request
from kubechronicle.http.streaming.copying import GONE, abort, acquire, receive_or_end
from kubechronicle.http.streaming.turns import rest, work_of
from kubechronicle.http.wire.exchange import close_iterator
from kubechronicle.http.wire.work import FRAME

TEXT, BINARY = 1, 2
LINGER = 2.0
"""Seconds to wait for the client's end after the closing frame: closing at once could reset bytes that it has not
read."""
SEND_WAIT = 60.0
"""Seconds for one message of a watch or log, after which the client is cut off as not reading."""
SLOW: Final = 25
"""Units of work (wire/work.py) of a frame, or a part of one, that wsproto reads: it makes several objects of each."""
CONTROL: Final = 10
"""Units of waste of a frame without data. Clients send one every few seconds."""
KEPT: Final = 64 * 1024
"""Bytes of an incomplete frame that are kept until the rest has come. wsproto reads longer frames in parts."""
_WHOLE: Final = 0x80 | BINARY  # the first byte of a binary message of one frame
_MASKED: Final = 0x80
_MEDIUM, _LARGE = struct.Struct("!BBH"), struct.Struct("!BBQ")


class Part(NamedTuple):
    """A piece of a message. ``first`` and ``last`` tell where the message begins and ends; ``text``: its kind."""

    data: bytes
    first: bool
    last: bool
    text: bool


def message_head(kind: int, size: int) -> bytes:
    """Return the header of one whole message of a server, with ``size`` bytes."""
    if size <= 125:
        return bytes((0x80 | kind, size))
    if size < 1 << 16:
        return _MEDIUM.pack(0x80 | kind, 126, size)
    return _LARGE.pack(0x80 | kind, 127, size)


def message(kind: int, data: bytes, prefix: bytes = b"") -> bytes:
    """Return one whole message of a server: ``prefix`` and ``data``."""
    return b"".join((message_head(kind, len(data) + len(prefix)), prefix, data))


def _mask_remover() -> Callable[[bytes | memoryview, bytes], bytes]:
    """Return the function that removes a mask at some gigabytes per second."""
    try:
        from websockets.speedups import apply_mask
    except ImportError:  # a platform for which websockets has no wheel
        from websockets.utils import apply_mask
    return apply_mask


class _Extent(NamedTuple):
    """The begin and the end of the payload of a frame."""

    begin: int
    end: int


def _extent(data: bytes, position: int) -> _Extent | None:
    """Return the extent of the frame at this position. None: its header is incomplete."""
    left = len(data) - position
    if left < 2:
        return None
    short = data[position + 1] & 0x7F
    extra = 0 if short < 126 else 2 if short == 126 else 8
    begin = position + 2 + extra + (4 if data[position + 1] & _MASKED else 0)
    if begin > len(data):
        return None
    length = int.from_bytes(data[position + 2 : position + 2 + extra], "big") if extra else short
    return _Extent(begin, begin + length)


def _is_plain(data: bytes, position: int, frame: _Extent) -> bool:
    """Tell whether a frame is a masked binary message with the shortest length."""
    size = frame.end - frame.begin
    expected = 6 if size < 126 else 8 if size < 1 << 16 else 14
    masked = data[position + 1] & _MASKED
    return data[position] == _WHOLE and bool(masked) and frame.begin - position == expected


class WebSocketFrameReader:
    """The decoder of a client's frames: bytes → Part, Ping, Pong, CloseConnection, each with its units of work.

    A CloseConnection is the client's closing frame if ``connection`` is then closing, and else an error in its frames.

    Invariant: wsproto gets whole frames and nothing of the next one, so that between two frames its buffer is empty.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unmask = _mask_remover()
        self._kept = b""
        self._left = 0  # bytes still to come of a frame that wsproto reads
        self._in_message = False

    def feed(self, data: bytes) -> Iterator[tuple[Part | Event, int]]:
        if self._kept:
            data, self._kept = self._kept + data, b""
        view, position, size = memoryview(data), 0, len(data)
        while position < size:
            if self._left:
                end = min(size, position + self._left)
                self._left -= end - position
                yield from self._read(data[position:end])
                position = end
                continue
            frame = _extent(data, position)
            if frame is None:
                self._kept = data[position:]
                return
            if not self._in_message and _is_plain(data, position, frame):
                if frame.end <= size:
                    mask = data[frame.begin - 4 : frame.begin]
                    yield Part(self._unmask(view[frame.begin : frame.end], mask), True, True, False), FRAME
                    position = frame.end
                    continue
                if frame.end - position <= KEPT:
                    self._kept = data[position:]
                    return
            self._left = frame.end - frame.begin
            yield from self._read(data[position : frame.begin])
            position = frame.begin

    def _read(self, data: bytes) -> Iterator[tuple[Part | Event, int]]:
        self._connection.receive_data(data)
        for event in self._connection.events():
            if not isinstance(event, Message):
                yield event, SLOW
                continue
            text = isinstance(event.data, str)
            content = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
            part = Part(content, not self._in_message, event.message_finished, text)
            self._in_message = not event.message_finished
            yield part, SLOW


class WebSocketSession:
    """One conversation. One task may receive while others send.

    ``stream``: the connection after the 101 answer.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.work = work_of(stream)
        self._stream = stream
        self._connection = Connection(ConnectionType.SERVER)
        self._reader = WebSocketFrameReader(self._connection)
        self._lock = trio.Lock()
        self._closed = False
        self._asked: CloseConnection | None = None  # the client's closing frame

    async def receive(self) -> AsyncIterator[list[Part]]:
        """Yield the parts of the client's messages, those of one read together, until it closes the session, breaks the
        protocol or is gone. The parts of one list are work for one pass of the event loop."""
        while self._asked is None and not self._closed and (data := await receive_or_end(self._stream)):
            parts: list[Part] = []
            pongs: list[bytes] = []
            for event, units in self._reader.feed(data):
                if isinstance(event, Part):
                    parts.append(event)
                elif isinstance(event, Ping):
                    pongs.append(self._encoded(event.response()))
                elif isinstance(event, CloseConnection):
                    yield parts
                    if self._connection.state is ConnectionState.REMOTE_CLOSING:
                        self._asked = event
                    else:
                        await self.close(event.code, event.reason or "")
                    return
                self.work.left -= units
                if not (isinstance(event, Part) and event.data) and not self.work.waste(CONTROL):
                    yield parts
                    await self.close(CloseReason.POLICY_VIOLATION, "too many frames without data")
                    return
                if self.work.left < 0:
                    yield parts
                    parts = []
                    await rest(self.work)
            if pongs:
                await self.send_frames(b"".join(pongs))
            yield parts

    def _encoded(self, event: Pong | CloseConnection) -> bytes:
        """Return a control frame; b"" if our closing frame has been sent already."""
        try:
            return self._connection.send(event)
        except LocalProtocolError:
            return b""

    async def send_frames(self, data: bytes) -> bool:
        """Send whole messages (`message`). False if the client is gone."""
        await acquire(self._lock)
        try:
            if self._closed:
                return False
            await self._stream.send_all(data)
        except GONE:
            self._closed = True
        finally:
            self._lock.release()
        return not self._closed

    async def probe(self) -> bool:
        """Send a pong that nobody asked for (RFC 6455 §5.5.3). False if the client is gone."""
        return await self.send_frames(self._encoded(Pong()))

    async def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        """Send the closing frame, wait a moment for the client's, and close the connection. A second call does
        nothing."""
        asked = self._asked
        frame = asked.response() if asked is not None else CloseConnection(code=code, reason=reason)
        if not self._closed and await self.send_frames(self._encoded(frame)):
            self._closed = True
            with trio.move_on_after(LINGER if asked is None else 0):
                await self._discard()
        await self._stream.aclose()

    def abort(self) -> None:
        """Close the connection with a reset: the client does not read."""
        self._closed = True
        abort(self._stream)

    async def _discard(self) -> None:
        """Return at the client's closing frame or end."""
        while data := await receive_or_end(self._stream):
            for event, units in self._reader.feed(data):
                self.work.left -= units
                if isinstance(event, CloseConnection):
                    return
            if self.work.left < 0:
                await rest(self.work)


def handshake(request: Request) -> Handshake:
    """Return the client's handshake. StatusError 400: it is not valid (RFC 6455 §4.2.1)."""
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers]
    found = Handshake([each for each in fields if each[0] != b"sec-websocket-extensions"], request.http_version)
    if request.method != "GET" or not found.is_valid():
        raise status.bad_request("websocket: a GET with Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key is needed")
    return found


async def accept(request: Request, asked: Handshake, subprotocol: str | None) -> trio.abc.Stream:
    """Answer 101, and return the client's stream. Raises ClientDisconnected."""
    assert request.upgrade is not None
    _, fields, _ = asked.accept(None, [])
    answer = [(name.decode(), value.decode()) for name, value in fields if name not in (b"upgrade", b"connection")]
    if subprotocol:
        answer.append((SUBPROTOCOLS, subprotocol))
    return await request.upgrade.accept(answer)


async def send_stream(request: Request, subprotocol: str | None, chunks: AsyncIterator[bytes], *, text: bool) -> None:
    """Converse: send each chunk as one message until either side ends it (a watch, a log).

    Closes the iterator. The client's messages are discarded; its end cancels the iteration.
    """
    session: WebSocketSession | None = None
    code = CloseReason.INTERNAL_ERROR
    try:
        session = WebSocketSession(await accept(request, handshake(request), subprotocol))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_discard_all, session, nursery.cancel_scope))
            await _send_all(session, chunks, TEXT if text else BINARY)
            nursery.cancel_scope.cancel()
        code = CloseReason.NORMAL_CLOSURE
    except (ClientDisconnected, *GONE):
        pass
    finally:
        await close_iterator(chunks)
        if session is not None:
            with trio.move_on_after(LINGER, shield=True), suppress(*GONE):
                await session.close(code)


async def _send_all(session: WebSocketSession, chunks: AsyncIterator[bytes], kind: int) -> None:
    async for chunk in chunks:
        with trio.move_on_after(SEND_WAIT) as scope:
            if not await session.send_frames(message(kind, chunk)):
                return
        if scope.cancelled_caught:
            session.abort()
            return
        chunk = b""  # while it waits for the next one, it holds no object that may be erased


async def _discard_all(session: WebSocketSession, scope: trio.CancelScope) -> None:
    async for _ in session.receive():
        pass
    scope.cancel()
