"""The server's side of one WebSocket session on a connection that has been taken over: sends, pongs, and the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import trio

from kubechronicle.http.streaming import websocket_frames as frames
from kubechronicle.http.streaming.copying import GONE, acquire, receive_or_end
from kubechronicle.http.streaming.turns import rest, work_of
from kubechronicle.http.wire.work import FRAME

LINGER = 2.0
"""Seconds to wait for the client's end after the closing frame: closing at once could reset what it has not read."""
CONTROL = 10
"""Units of work (wire/work.py) of a control frame. Clients send one every few seconds."""


class WebSocketSession:
    """One task may receive while others send.

    ``stream``: the connection after the 101 answer.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.work = work_of(stream)
        self._stream = stream
        self._reader = frames.WebSocketFrameReader()
        self._lock = trio.Lock()
        self._closed = False

    async def receive(self) -> AsyncIterator[list[frames.Part]]:
        """Yield the parts of the client's messages, those of one read together, until it closes the session, breaks the
        protocol or is gone. The parts of one list are work for one pass of the event loop."""
        try:
            async for parts in self._batches():
                yield parts
        except frames.FrameError as error:
            await self.close(error.code, str(error))

    async def _batches(self) -> AsyncIterator[list[frames.Part]]:
        """Yield parts until the client's closing frame or end. Raises FrameError after the parts before the error."""
        while data := await receive_or_end(self._stream):
            parts: list[frames.Part] = []
            pongs: list[bytes] = []
            try:
                for event in self._reader.feed(data):
                    self._count(event)
                    if isinstance(event, frames.Part):
                        parts.append(event)
                    elif isinstance(event, frames.Ping):
                        pongs.append(frames.encode(frames.PONG, event.data))
                    elif isinstance(event, frames.Close):
                        yield parts
                        return
                    if self.work.left < 0:
                        yield parts
                        parts = []
                        await rest(self.work)
            except frames.FrameError:
                yield parts
                raise
            if pongs:
                await self.send_frames(b"".join(pongs))
            yield parts

    def _count(self, event: frames.Event) -> None:
        """Count the work of a frame. Raises FrameError if too many have no data."""
        if isinstance(event, frames.Part):
            if event.data:
                self.work.left -= FRAME
                return
            is_fine = self.work.waste(FRAME)
        else:
            is_fine = self.work.waste(CONTROL)
        if not is_fine:
            raise frames.FrameError("too many frames without data", frames.POLICY_VIOLATION)

    async def send_frames(self, data: bytes) -> bool:
        """Send encoded frames. False if the client is gone."""
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
        return await self.send_frames(frames.encode(frames.PONG, b""))

    async def close(self, code: int = frames.NORMAL, reason: str = "") -> None:
        """Send the closing frame, wait a moment for the client's, and close the connection. A second call does
        nothing."""
        if not self._closed and await self.send_frames(frames.encode_close(code, reason)):
            self._closed = True
            with trio.move_on_after(LINGER), suppress(frames.FrameError):
                async for _ in self._batches():
                    pass
        await self._stream.aclose()
