"""Takeover of a connection by a handler, after which its bytes are no longer HTTP (RFC 9110 §7.8).

    http1: a request with an Upgrade field → Takeover, as `request.upgrade`
    handler: `await request.upgrade.accept()` or `take_over()` → RawStream → returns SWITCHED

Until then, bytes after the request are held, and errors are ordinary answers. From then on the reader of the connection
rests, no deadline applies, and the handler reads and writes the TLS stream itself. A slow client is never cut: only its
operating system or the handler ends it. A handler must end when `request.draining` is set.

Invariant: no byte is lost or read twice: the reader has stopped before the handler reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from kubechronicle.http.messages import ClientDisconnected, HeaderList
from kubechronicle.http.wire.heads import answer_lines
from kubechronicle.http.wire.protocol_interface import WireProtocol
from kubechronicle.http.wire.tls import TLSStream
from kubechronicle.http.wire.work import Work

HELD_BYTES = 64 * 1024
"""Bytes held from a client that does not wait for the answer to its upgrade. Beyond it the socket is not read."""
READ_BYTES = 256 * 1024
"""Maximum bytes of one read."""


class TakeoverHost(Protocol):
    """The connection, as a takeover calls it."""

    work: Work

    async def take_over(self, protocol: WireProtocol) -> TLSStream:
        """Stop reading, and return the stream when nothing else reads or writes it. Raises ClientDisconnected."""

    def end(self) -> None:
        """Close the connection."""


class ClientBroken(trio.BrokenResourceError, ClientDisconnected):
    """The client is gone: for the handler an error of its stream, for the connection no error at all."""


class RawStream(trio.abc.HalfCloseableStream):
    """The client's bytes in both directions. ``early``: bytes that were received before the takeover. ``work``: the
    budget of the connection, on which its session counts.

    Errors are those of trio's streams; ClientBroken may leave the handler. `aclose` ends our direction; the connection
    closes when the handler returns.
    """

    def __init__(self, stream: TLSStream, early: bytes, work: Work) -> None:
        self.work = work
        self._stream = stream
        self._early = early
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return received data, at most 256 KiB; b"" at the client's end."""
        if self._closed:
            raise trio.ClosedResourceError
        limit = READ_BYTES if max_bytes is None else max_bytes
        if self._early:
            await trio.lowlevel.checkpoint()
            data, self._early = self._early[:limit], self._early[limit:]
            return data
        return await self.receive_many(limit)

    async def receive_many(self, limit: int, turn: Callable[[], Awaitable[None]] | None = None) -> bytes:
        """Return received data. ``turn``: as in TLSStream."""
        if self._closed:
            raise trio.ClosedResourceError
        if self._early:
            return await self.receive_some(limit)
        try:
            return await self._stream.receive_many(limit, turn)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientBroken(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientBroken(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Send close_notify and end our direction; the client's data can still be received."""
        self._stream.send_eof_nowait(half=True)
        await trio.lowlevel.checkpoint()

    def peer_left(self) -> bool:
        """Return whether the client has closed its connection, with data that is not yet received or without."""
        return self._stream.peer_left()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._stream.getsockopt(level, option, size)

    def abort(self) -> None:
        """Close the connection with a reset."""
        self._closed = True
        self._stream.abort()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.send_eof_nowait()
        await trio.lowlevel.checkpoint()


class _TakenConnection:
    """The protocol of a connection that was taken over. Keeps the bytes that the reader still receives."""

    awaits_header = False

    def __init__(self) -> None:
        self.late = b""

    async def initiate(self) -> None:
        pass

    async def received(self, data: bytes) -> None:
        self.late += data

    async def ended(self) -> None:
        pass

    async def drain(self) -> None:
        """Do nothing: the handler ends when `request.draining` is set."""

    def disconnected(self) -> None:
        """Do nothing: the stream is closed, which the handler notices."""


class Takeover:
    """The upgrade that a client asks for (messages.Upgrade).

    ``protocol``: the Upgrade field, as sent.
    ``early``: returns the held bytes, and ends their holding.
    ``date_line``: returns the date field of answers.
    """

    def __init__(
        self, host: TakeoverHost, protocol: str, *, early: Callable[[], bytes], date_line: Callable[[], bytes]
    ) -> None:
        self._host = host
        self._protocol = protocol
        self._early = early
        self._date_line = date_line
        self.stream: RawStream | None = None
        self.possible = True

    @property
    def protocol(self) -> str:
        return self._protocol

    @property
    def taken(self) -> bool:
        return self.stream is not None

    async def take_over(self) -> RawStream:
        if not self.possible:
            raise ClientDisconnected
        self.possible = False
        connection = _TakenConnection()
        tls = await self._host.take_over(connection)
        self.stream = RawStream(tls, self._early() + connection.late, self._host.work)
        return self.stream

    async def accept(self, headers: HeaderList = ()) -> RawStream:
        fields = [("connection", "Upgrade"), ("upgrade", self._protocol), *headers]
        head = answer_lines(101, fields, date=self._date_line())
        stream = await self.take_over()
        try:
            await stream.send_all(head)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ClientDisconnected from None
        return stream

    async def end(self) -> None:
        """Close the connection after the handler has returned."""
        if self.stream is not None:
            await self.stream.aclose()
        self._host.end()
