"""Copying between two connections, in both directions, with the back pressure of both, and with an end for peers that
are gone."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from kubechronicle.http.streaming.turns import of_this_loop
from kubechronicle.http.streaming.vanished import Silence, limit_silence

CHUNK = 256 * 1024
"""Bytes read at once; what is read is sent before more is read, so a session holds two chunks."""
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)
ABANDONED: Final = 3.0
"""Seconds for which the last bytes of a client that has left wait for the other side."""
LOOK: Final = 1.0
"""Seconds between looks after a client whose bytes wait."""


async def receive_or_end(stream: trio.abc.ReceiveStream) -> bytes:
    """Return received bytes when it is the session's turn, or b"" if the peer has ended the connection in any way."""
    try:
        # A TLS stream returns one record of 16 KiB at a time, unless it is asked for many.
        receive = getattr(stream, "receive_many", None)
        if receive is None:
            return bytes(await stream.receive_some(CHUNK))
        turns = of_this_loop()
        data: bytes = await receive(CHUNK, turns.take)
        turns.note(len(data))
        return data
    except GONE:
        return b""


async def acquire(lock: trio.Lock) -> None:
    """Acquire a lock. A free one is acquired at once: `trio.Lock.acquire` always takes a pass of the event loop."""
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        await lock.acquire()


def abort(stream: trio.abc.AsyncResource) -> None:
    """Reset a connection, if it is one of the network."""
    reset = getattr(stream, "abort", None)
    if reset is not None:
        reset()
    elif isinstance(stream, trio.SocketStream):
        with suppress(OSError):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()


class Outlet:
    """The sends to one side of a session, which tell when the other side has left meanwhile.

    While a send waits, nothing reads the ``source``. Its end stands behind unread bytes, so only a look at the socket
    tells of it. Even that does not if no room is left for unread bytes: then its end has not come. But the system of a
    client that has left answers bytes with a reset.

    A peer that has vanished (vanished.py) is looked for at both sides, and its connection is reset.

    ``probe``: sends the source a few bytes that need no answer; False if it is gone.
    """

    def __init__(
        self,
        target: trio.abc.SendStream,
        source: trio.abc.Stream,
        *,
        probe: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._target = target
        self._source = source
        self._probe = probe
        self._silences = tuple((side, Silence(side)) for side in (target, source))
        # Either side may leave bytes unread for as long as it likes.
        limit_silence(target, 0)
        self._since: float | None = None  # the begin of the current send

    async def send(self, data: bytes | memoryview) -> bool:
        """Send all data. False if the target is gone."""
        self._since = trio.current_time()
        try:
            await self._target.send_all(data)
        except GONE:
            return False
        except trio.Cancelled:
            # Behind unsent bytes, the end of the connection might never come.
            abort(self._target)
            raise
        finally:
            self._since = None
        return True

    async def wait_abandoned(self) -> None:
        """Return when a send has waited for ABANDONED seconds, and the source has left. Resets connections whose peer
        has vanished."""
        has_left = getattr(self._source, "peer_left", None)
        while True:
            await trio.sleep(LOOK)
            for side, silence in self._silences:
                if silence.has_vanished():
                    abort(side)
            since = self._since
            if since is None or trio.current_time() - since < ABANDONED:
                continue
            if has_left is not None and has_left():
                return
            if self._probe is not None and not await self._probe():
                return


async def copy_both(left: trio.abc.Stream, right: trio.abc.Stream, *, draining: trio.Event) -> None:
    """Copy until either side has ended or the server drains, as kube-apiserver's proxy of upgraded connections does.

    ``left``: the client. If it leaves while the other side does not read and no room is left for its bytes, that takes
    minutes to notice. Closes neither stream. By the end of a side it has sent on all bytes that came before it.
    """
    outlet = Outlet(right, left)
    async with trio.open_nursery() as nursery:

        async def to_right() -> None:
            while (data := await receive_or_end(left)) and await outlet.send(data):
                pass
            nursery.cancel_scope.cancel()

        async def to_left() -> None:
            while data := await receive_or_end(right):
                try:
                    await left.send_all(data)
                except GONE:
                    break
            nursery.cancel_scope.cancel()

        async def end_abandoned() -> None:
            await outlet.wait_abandoned()
            nursery.cancel_scope.cancel()

        nursery.start_soon(to_right)
        nursery.start_soon(to_left)
        nursery.start_soon(end_abandoned)
        await draining.wait()
        nursery.cancel_scope.cancel()
