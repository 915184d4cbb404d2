"""One request of an HTTP/2 connection: its stream, and the framing of its answer (RFC 9113 §8.1).

Lives here: the stream's windows and sending. connection.py receives, and streams.py has the other streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import trio

from kubechronicle.http.messages import ClientDisconnected, Push
from kubechronicle.http.wire.exchange import NO_BODY, HttpExchange, encode_headers
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import ErrorCode
from kubechronicle.http.wire.http2.output import WRITE, StreamOutput
from kubechronicle.http.wire.protocol_interface import ConnectionHost

DELAYED = 16 * 1024
"""Bytes of DATA that may wait to be sent together with frames of other streams."""


class Streams(Protocol):
    """The streams of the connection, as an exchange sees them."""

    running: set[Http2Exchange]

    def half_closed(self, exchange: Http2Exchange) -> None:
        """Note that our side has ended, or the client's."""

    def reset(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """Reset the stream unless it is closed."""

    def consumed(self, exchange: Http2Exchange, size: int) -> None:
        """Note that the application has read ``size`` bytes."""

    async def finished(self, exchange: Http2Exchange) -> None:
        """Note that the exchange sends nothing more."""


class Http2Exchange(HttpExchange[tuple[bytes, bytes]]):
    """One stream.

    ``window``: bytes that the client accepts.
    ``receive_window``: bytes that the client may send.
    ``owed``: bytes of the receive window not credited yet.
    ``left``: bytes left of the declared body; None without a declaration.
    ``end_connection``: sends GOAWAY with the next flush, unless it was sent.
    """

    _encode = staticmethod(encode_headers)
    window: int
    receive_window: int
    closed = False  # reset by either side
    sent_end = False
    _finished = False
    _is_last = False
    owed = 0
    _limited_until = math.inf
    _overdue = False
    _scope: trio.CancelScope | None = None
    _room: trio.Event | None = None
    _held: list[bytes] | None = None

    def __init__(
        self,
        streams: Streams,
        output: StreamOutput,
        host: ConnectionHost,
        stream_id: int,
        left: int | None,
        end_connection: Callable[[], object],
    ) -> None:
        super().__init__(host)
        self._end_connection = end_connection
        self._streams = streams
        self._output = output
        self.stream_id = stream_id
        self.left = left

    def leave(self) -> None:
        """Implement Exchange. GOAWAY follows the answer: some clients read nothing after it."""
        self._is_last = True

    # --- its task ---

    async def work(self, scope: trio.CancelScope) -> None:
        if self._gone:  # reset by the client before it began
            self._host.finish_exchange(self)
            await self._finish()
            del self.request
            return
        self._scope = scope
        try:
            await self.run()
        finally:
            self._scope = None
            if scope.cancel_called and not self._finished:
                self._host.start_task(self._finish)  # cancelled before its answer was complete

    def limit(self, deadline: float) -> bool:
        self._limited_until = deadline
        return self._scope is not None

    @property
    def overdue(self) -> bool:
        return self._overdue

    def reap(self, now: float) -> bool:
        """End the request if its deadline has passed. True: it is ended now."""
        if now < self._limited_until or self._scope is None:
            return False
        self._overdue = self.inline = True  # a streamed answer continues in another task
        self._limited_until = math.inf
        self._scope.cancel()
        return True

    # --- receiving ---

    async def _consumed(self, size: int) -> None:
        self._streams.consumed(self, size)
        await self._output.flush()

    def disconnected(self) -> None:
        super().disconnected()
        self.wake()

    def wake(self) -> None:
        """Note that the window may have grown."""
        if self._room is not None:
            self._room.set()

    # --- sending ---

    @property
    def push(self) -> Push | None:
        return None if self.request.method == "HEAD" else self._push

    def _push(self, chunk: bytes) -> bool:
        """Send a chunk in whole frames; False if the window or the connection has no room for it."""
        output, size = self._output, len(chunk)
        if self.closed or self._gone or size > self.window or size > output.window or not output.ready:
            return False
        self.window -= size
        output.window -= size
        parts: list[bytes] = []
        if self._held is not None:
            parts, self._held = self._held, None
        if size <= output.frame_size:
            parts += (frames.head(size, frames.DATA, 0, self.stream_id), chunk)
        else:
            for start in range(0, size, output.frame_size):
                part = chunk[start : start + output.frame_size]
                parts += (frames.head(len(part), frames.DATA, 0, self.stream_id), part)
        output.gather(parts, size)
        return True

    def _head(self, status: int, headers: list[tuple[bytes, bytes]], *, end: bool) -> list[bytes]:
        if self.closed:
            raise ClientDisconnected
        return self._output.answer(self.stream_id, status, headers, end=end)

    async def _emit(self, parts: list[bytes], size: int) -> None:
        """Send parts with ``size`` bytes of DATA; a few, if other streams are running, together with theirs."""
        if size < DELAYED and len(self._streams.running) > 1 and self._output.ready:
            self._output.gather(parts, size)
        else:
            await self._output.send(parts)

    async def _send_answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        if status in NO_BODY:
            body = b""
        else:
            headers.append((b"content-length", b"%d" % len(body)))
        if body and self.request.method != "HEAD":
            await self._send_body(self._head(status, headers, end=False), body, end=True)
            return
        parts = self._head(status, headers, end=True)
        self._end()
        await self._emit(parts, 0)

    async def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        parts = self._head(status, headers, end=False)
        if any(name == b"content-length" for name, _ in headers):
            self._held = parts  # sent together with the first chunk of the body
        else:
            await self._emit(parts, 0)

    async def _send_chunk(self, chunk: bytes) -> None:
        if self.request.method != "HEAD":
            await self._send_body(self._take_held(), chunk, end=False)

    async def _send_end(self) -> None:
        if self.closed:
            return
        parts = self._take_held()
        parts.append(frames.head(0, frames.DATA, frames.END_STREAM, self.stream_id))
        self._end()
        await self._emit(parts, 0)

    def _take_held(self) -> list[bytes]:
        held, self._held = self._held, None
        return held or []

    def _end(self) -> None:
        self.sent_end = True
        self._streams.half_closed(self)

    async def _send_body(self, parts: list[bytes], data: bytes, *, end: bool) -> None:
        try:
            await self._send_frames(parts, data, end=end)
        finally:
            if self._output.waiting:
                self._output.pass_on()

    async def _send_frames(self, parts: list[bytes], data: bytes, *, end: bool) -> None:
        """Send frames as large as windows and the client's settings allow, up to WRITE bytes in one write."""
        output, size, at, gathered = self._output, len(data), 0, 0
        patience = math.inf
        while at < size:
            if self.closed or self._gone:
                raise ClientDisconnected
            room = min(self.window, output.window, output.frame_size, size - at)
            if room <= 0 or gathered >= WRITE:
                if parts:
                    await self._emit(parts, gathered)
                    parts, gathered = [], 0
                    if output.waiting:
                        output.pass_on()
                else:
                    patience = min(patience, trio.current_time() + self._host.limits.send_wait)
                    await self._wait_room(patience)
                continue
            patience = math.inf
            self.window -= room
            output.window -= room
            last = end and at + room == size
            if last:
                self._end()
            parts.append(frames.head(room, frames.DATA, frames.END_STREAM if last else 0, self.stream_id))
            parts.append(data if room == size else data[at : at + room])
            at += room
            gathered += room
        await self._emit(parts, gathered)

    async def _wait_room(self, patience: float) -> None:
        """Wait until the window may have grown. Raises ClientDisconnected after ``patience``."""
        waiting = self._output.waiting
        self._output.pass_on()
        self._room = trio.Event()
        waiting[self] = None
        try:
            with trio.move_on_at(patience):
                await self._room.wait()
                return
        finally:
            del waiting[self]
            self._room = None
        self._host.count_cut_off()
        self._streams.reset(self, ErrorCode.CANCEL)
        await self._output.flush()
        raise ClientDisconnected

    async def _finish(self) -> None:
        self._finished = True
        if self._buffered:  # unread: reset before it began, or ended by its deadline
            await self._discard_buffered()
        if self._is_last:
            self._end_connection()
        await self._streams.finished(self)
