"""Connections of sessions with a limit of bytes a second, in each direction (--max-connection-bytes-per-sec)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import trio

from kubechronicle.http.streaming.copying import abort

SLICE: Final = 0.1
"""Seconds for which the bytes are passed on at once: a short burst, and then a pause of about this time."""


class _Pace:
    """The time at which the next bytes of one direction may pass."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.most = max(1, int(rate * SLICE))
        self._next = trio.current_time()

    async def wait(self) -> None:
        await trio.sleep_until(self._next)

    def passed(self, size: int) -> None:
        self._next = max(self._next, trio.current_time()) + size / self._rate


class PacedStream(trio.abc.Stream):
    """The stream of another server. A direction passes ``rate`` bytes a second at most."""

    def __init__(self, stream: trio.abc.Stream, rate: int) -> None:
        self._stream = stream
        self._received, self._sent = _Pace(rate), _Pace(rate)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._received.wait()
        most = self._received.most
        data = await self._stream.receive_some(most if max_bytes is None else min(max_bytes, most))
        self._received.passed(len(data))
        return bytes(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        whole, most = memoryview(data), self._sent.most
        for start in range(0, len(whole), most):
            await self._sent.wait()
            part = whole[start : start + most]
            await self._stream.send_all(part)
            self._sent.passed(len(part))

    async def wait_send_all_might_not_block(self) -> None:
        await self._sent.wait()
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def abort(self) -> None:
        abort(self._stream)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Return an option of the socket, for `Silence`."""
        look: Callable[[int, int, int], bytes] | None = getattr(self._stream, "getsockopt", None)
        if look is None:
            raise OSError(errno.ENOTSOCK, "not a socket")
        return look(level, option, size)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket, for ``limit_silence``."""
        change: Callable[[int, int, int], None] | None = getattr(self._stream, "setsockopt", None)
        if change is None:
            raise OSError(errno.ENOTSOCK, "not a socket")
        change(level, option, value)


def paced(stream: trio.abc.Stream, rate: int) -> trio.abc.Stream:
    """Return the stream with this limit; 0: with none."""
    return PacedStream(stream, rate) if rate else stream
