"""One request of an HTTP/2 connection: its stream, and how its answer is framed (RFC 9113 §8.1).

Lives here: the stream's windows and what is sent on it. What is received, and every other stream, is http2.py's.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from kubechronicle.http.messages import ClientDisconnected, Push
from kubechronicle.http.wire.exchange import NO_BODY, HttpExchange
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import ErrorCode
from kubechronicle.http.wire.http2.output import WRITE, Output
from kubechronicle.http.wire.protocol_interface import ConnectionHost

GATHERED = 16 * 1024
"""Of DATA that may wait for what others say."""


class Streams(Protocol):
    """What an exchange needs of its connection's streams."""

    running: set[Http2Exchange]

    def half_closed(self, exchange: Http2Exchange) -> None:
        """Our side has ended, or the client's."""

    def reset(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """Tell the client that its stream is over; does nothing if it is."""

    def consumed(self, exchange: Http2Exchange, size: int) -> None:
        """The application took so many bytes."""

    async def finished(self, exchange: Http2Exchange) -> None:
        """Nothing more is sent."""


class Http2Exchange(HttpExchange):
    """``window``: what the client takes; ``receive_window``: what it may send, and ``owed`` what it has not been told
    that it may send again; ``left``: of the body it declared."""

    window: int
    receive_window: int
    closed = False  # reset by either side
    sent_end = False
    _finished = False
    owed = 0
    _limited_until = math.inf
    _overdue = False
    _scope: trio.CancelScope | None = None
    _room: trio.Event | None = None
    _held: list[bytes] | None = None

    def __init__(
        self, streams: Streams, output: Output, host: ConnectionHost, stream_id: int, left: int | None
    ) -> None:
        super().__init__(host)
        self._streams = streams
        self._output = output
        self.stream_id = stream_id
        self.left = left

    # --- its task ---

    async def work(self, scope: trio.CancelScope) -> None:
        if self._gone:  # its client was faster: nobody asks any more
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
                self._host.start_task(self._finish)  # cancelled before all of its answer was said

    def limit(self, deadline: float) -> bool:
        self._limited_until = deadline
        return self._scope is not None

    @property
    def overdue(self) -> bool:
        return self._overdue

    def reap(self, now: float) -> None:
        if now >= self._limited_until and self._scope is not None:
            self._overdue = self.inline = True  # what goes on after its answer has begun goes on in another task
            self._limited_until = math.inf
            self._scope.cancel()

    # --- receiving ---

    async def _consumed(self, size: int) -> None:
        self._streams.consumed(self, size)
        await self._output.flush()

    def disconnected(self) -> None:
        super().disconnected()
        self.wake()

    def wake(self) -> None:
        """There may be room to send."""
        if self._room is not None:
            self._room.set()

    # --- sending ---

    @property
    def push(self) -> Push | None:
        return None if self.request.method == "HEAD" else self._push

    def _push(self, chunk: bytes) -> bool:
        """In whole frames; False if the client or the connection has no room for it."""
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
        """``size``: of the DATA in it."""
        if size < GATHERED and len(self._streams.running) > 1 and self._output.ready:
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
            self._held = parts  # the body is at hand, and goes along
        else:
            await self._emit(parts, 0)

    async def _send_chunk(self, chunk: bytes) -> None:
        if self.request.method != "HEAD":
            await self._send_body(self._taken(), chunk, end=False)

    async def _send_end(self) -> None:
        if self.closed:
            return
        parts = self._taken()
        parts.append(frames.head(0, frames.DATA, frames.END_STREAM, self.stream_id))
        self._end()
        await self._emit(parts, 0)

    def _taken(self) -> list[bytes]:
        held, self._held = self._held, None
        return held or []

    def _end(self) -> None:
        self.sent_end = True
        self._streams.half_closed(self)

    async def _send_body(self, parts: list[bytes], data: bytes, *, end: bool) -> None:
        """Frames as large as windows and the client's settings allow, up to WRITE bytes in one write."""
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
        """Until the client may have made room. Raises ClientDisconnected when it has not in time."""
        waiting = self._output.waiting
        self._room = trio.Event()
        waiting.add(self)
        try:
            with trio.move_on_at(patience):
                await self._room.wait()
                return
        finally:
            waiting.discard(self)
            self._room = None
        self._host.count_cut_off()
        self._streams.reset(self, ErrorCode.CANCEL)
        await self._output.flush()
        raise ClientDisconnected

    async def _finish(self) -> None:
        self._finished = True
        if self._buffered:  # nobody has looked at it: reset before it was begun, or its time was over
            await self._discard_buffered()
        await self._streams.finished(self)
