"""What one HTTP/2 connection sends: in order, gathered, within what the client takes.

Whatever is to be sent lies in a list until it is written, in one piece: at once when a request is alone, otherwise
with what else is answered or told meanwhile. Which of them are sent first is not decided: priorities are deprecated
(RFC 9113 §5.3).

Invariant: between taking the list and the connection's write there is no checkpoint, so that frames leave in order.
"""

from __future__ import annotations

from typing import Protocol

from kubechronicle.http.wire.date_field import DateField
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.headers import NO_TABLE, encode_answer
from kubechronicle.http.wire.http2.workers import Workers
from kubechronicle.http.wire.protocol_interface import ConnectionHost

WRITE = 64 * 1024
"""DATA gathered for one write: four frames, so that large answers are not one system call per 16 KiB frame."""


class Waiting(Protocol):
    def wake(self) -> None:
        """There may be room to send."""


class Output:
    """``window``: what the client takes of all streams together; ``frame_size``: of one frame; ``waiting``: who needs
    a window to open."""

    def __init__(self, host: ConnectionHost, date_field: DateField, workers: Workers) -> None:
        self._host = host
        self._date_field = date_field
        self._workers = workers
        self.window = frames.DEFAULT_WINDOW
        self.frame_size = frames.FRAME_SIZE
        self.waiting: set[Waiting] = set()
        self.closed = False
        self._parts: list[bytes] = []
        self._size = 0
        self._first_block = True
        self._flushing = False

    def add(self, part: bytes) -> None:
        """To go along with what is sent next."""
        self._parts.append(part)

    def answer(self, stream_id: int, status: int, headers: list[tuple[bytes, bytes]], *, end: bool) -> list[bytes]:
        """An answer's head, which must be the next that is sent of all that have one."""
        block = encode_answer(status, headers + self._date_field.fields())
        if self._first_block:
            self._first_block = False
            block = NO_TABLE + block
        return frames.header_frames(stream_id, block, self.frame_size, end=end)

    def widen(self, increment: int) -> None:
        """Raises ConnectionFailed."""
        self.window += increment
        if not increment:
            raise frames.ConnectionFailed(frames.ErrorCode.PROTOCOL_ERROR)
        if self.window > frames.MAX_WINDOW:
            raise frames.ConnectionFailed(frames.ErrorCode.FLOW_CONTROL_ERROR)
        for each in self.waiting:
            each.wake()

    @property
    def ready(self) -> bool:
        """Whether ``gather`` may be called."""
        return self._host.ready and not self.closed

    def gather(self, parts: list[bytes], size: int) -> None:
        """Send it soon, with others: from any task, without waiting. ``size``: of the DATA in it."""
        self._parts += parts
        self._size += size
        if self._size >= WRITE:
            self._host.push(self._taken())
        elif not self._flushing:
            self._flushing = True
            self._workers.run(self)

    async def work(self, scope: object) -> None:
        """Those who gather have had their turn."""
        self._flushing = False
        await self.flush()

    async def send(self, parts: list[bytes]) -> None:
        if not self.closed:
            self._parts += parts
            await self._host.write(self._taken())

    async def flush(self) -> None:
        if self._parts and not self._flushing:
            await self.send([])

    async def close(self) -> None:
        """Send what is left, and nothing after it."""
        self._flushing = False
        await self.flush()
        self.closed = True

    def _taken(self) -> bytes:
        data = b"".join(self._parts)
        self._parts, self._size = [], 0
        return data
