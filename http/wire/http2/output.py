"""The output of one HTTP/2 connection: frames in order, joined, within the client's windows.

Frames wait in a list until they are written together: at once if a request is alone, otherwise with the frames of other
streams. There is no priority among streams (deprecated, RFC 9113 §5.3).

Invariant: there is no checkpoint between taking the list and the connection's write, so frames leave in order.
"""

from __future__ import annotations

from typing import Protocol

from kubechronicle.http.headers import DateField
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.headers import NO_TABLE, encode_answer
from kubechronicle.http.wire.http2.workers import Workers
from kubechronicle.http.wire.protocol_interface import ConnectionHost

WAKE = 60
"""Units of work (work.py) of an exchange that is woken, sends a little and waits again."""
WRITE = 64 * 1024
"""Bytes of DATA in one write: four frames, so that a large answer needs fewer system calls."""


class Waiting(Protocol):
    window: int

    def wake(self) -> None:
        """Note that a window may have grown."""


class StreamOutput:
    """The frames to send.

    ``window``: bytes that the client accepts on all streams together.
    ``frame_size``: maximum bytes of a frame.
    ``waiting``: the exchanges that wait for a window to grow, in the order in which they began to wait.
    """

    def __init__(self, host: ConnectionHost, date_field: DateField, workers: Workers) -> None:
        self._host = host
        self._date_field = date_field
        self._workers = workers
        self.window = frames.DEFAULT_WINDOW
        self.frame_size = frames.FRAME_SIZE
        self.waiting: dict[Waiting, None] = {}
        self.closed = False
        self._parts: list[bytes] = []
        self._size = 0
        self._first_block = True
        self._flushing = False

    def add(self, part: bytes) -> None:
        """Add a frame to the next write."""
        self._parts.append(part)

    def answer(self, stream_id: int, status: int, headers: list[tuple[bytes, bytes]], *, end: bool) -> list[bytes]:
        """Return the head of an answer, which must be sent before any other header block."""
        block = encode_answer(status, headers + self._date_field.fields())
        if self._first_block:
            self._first_block = False
            block = NO_TABLE + block
        return frames.header_frames(stream_id, block, self.frame_size, end=end)

    def widen(self, increment: int) -> None:
        """Add to the client's window of all streams. Raises ConnectionFailed."""
        was_open = self.window > 0
        self.window += increment
        if not increment:
            raise frames.ConnectionFailed(frames.ErrorCode.PROTOCOL_ERROR)
        if self.window > frames.MAX_WINDOW:
            raise frames.ConnectionFailed(frames.ErrorCode.FLOW_CONTROL_ERROR)
        if not was_open:  # otherwise they wait for windows of their own
            self.pass_on()

    def pass_on(self) -> None:
        """Wake the first exchange that can send, which passes on the rest of the window. To wake all of them for each
        byte would be work without an end (CVE-2019-9511)."""
        if self.window > 0:
            for each in self.waiting:
                if each.window > 0:
                    self._host.work.left -= WAKE
                    each.wake()
                    return

    @property
    def ready(self) -> bool:
        """True if ``gather`` may be called."""
        return self._host.ready and not self.closed

    def gather(self, parts: list[bytes], size: int) -> None:
        """Send parts with ``size`` bytes of DATA soon, together with others; from any task, without waiting."""
        self._parts += parts
        self._size += size
        if self._size >= WRITE:
            self._host.push(self._take_all())
        elif not self._flushing:
            self._flushing = True
            self._workers.run(self)

    async def work(self, scope: object) -> None:
        """Write the frames that other tasks have added meanwhile (workers.Job)."""
        self._flushing = False
        await self.flush()

    async def send(self, parts: list[bytes]) -> None:
        if not self.closed:
            self._parts += parts
            await self._host.write(self._take_all())

    async def flush(self) -> None:
        if self._parts and not self._flushing:
            await self.send([])

    async def close(self) -> None:
        """Send the remaining frames, and nothing after them."""
        self._flushing = False
        await self.flush()
        self.closed = True

    def _take_all(self) -> bytes:
        data = b"".join(self._parts)
        self._parts, self._size = [], 0
        return data
