"""Copying between two connections, in both directions, with the back pressure of both, and with an end for peers that
are gone."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from kubechronicle.http.streaming.turns import of_this_loop

# -- vanished ----------------------------------------------------------------------------------------------------------
#
# Peers that have vanished: a machine without power, or a network that is cut. No packet tells of it.
#
# TCP's keep-alive finds such a peer while nothing is on the way to it. Otherwise, the system sends the bytes again for
# about a quarter of an hour. TCP_USER_TIMEOUT would shorten that, but it also ends the connection of a peer that is
# there and does not read. So it is for requests alone, which no server leaves unread. `Silence` tells both apart:
#
#     the peer                        answers        the system counts
#     is there                        all bytes      nothing
#     is there, and does not read     probes         probes, from zero again after each answer
#     has vanished                    nothing        transmissions or probes, and the time since the last answer
#
# Without TCP_INFO (systems other than Linux) no peer is known to have vanished.


VANISHED = 75.0
"""Seconds without any answer after which a peer has vanished. Keep-alive takes as long (wire/connection.py)."""
TRIES: Final = 2
"""Transmissions or probes in that time which had no answer. One can get lost."""
LONGEST_PAUSE: Final = 15_000
"""Milliseconds between two of them at most. Linux before 6.15 ignores it, and pauses for up to 120 s."""
_MOMENT: Final = 0.05
"""Seconds by which two computed times of the same answer can differ."""
_RTO_MAX_MS: Final = 44  # TCP_RTO_MAX_MS, which Python lacks
_COUNTS: Final = struct.Struct("=2xBB20xI28xI")
"""Of struct tcp_info: retransmits, probes, unacked, last_ack_recv (milliseconds)."""


def limit_silence(connection: object, seconds: float) -> None:
    """Let the system end a connection whose bytes are not taken for so many seconds; 0: however long that is.

    Does nothing for connections other than TCP's.
    """
    set_option: Callable[[int, int, int], None] | None = getattr(connection, "setsockopt", None)
    if set_option is None or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    for option, value in ((socket.TCP_USER_TIMEOUT, int(seconds * 1000)), (_RTO_MAX_MS, LONGEST_PAUSE)):
        with contextlib.suppress(OSError, trio.ClosedResourceError):
            set_option(socket.IPPROTO_TCP, option, value)


class Silence:
    """The signs that a connection shows of its peer, for one task that looks at it every few seconds.

    ``connection``: a stream. One without ``getsockopt`` has no peer that can vanish.
    """

    __slots__ = ("_answered", "_counted", "_look")

    def __init__(self, connection: object) -> None:
        look: Callable[[int, int, int], int | bytes] | None = getattr(connection, "getsockopt", None)
        self._look = look if hasattr(socket, "TCP_INFO") else None
        self._answered = 0.0  # the time of the last answer
        self._counted = 0  # transmissions that the system had counted when that was seen

    def has_vanished(self) -> bool:
        """Return whether the peer has answered nothing for VANISHED seconds, though it should have."""
        if self._look is None:
            return False
        try:
            found = self._look(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
        except (OSError, ValueError, trio.ClosedResourceError):
            return False  # closed here, or not TCP
        if not isinstance(found, bytes) or len(found) < _COUNTS.size:
            return False
        transmissions, probes, unacknowledged, silent = _COUNTS.unpack(found)
        answered = time.monotonic() - silent / 1000
        if answered > self._answered + _MOMENT:
            self._answered, self._counted = answered, transmissions
        if silent < VANISHED * 1000:
            return False
        tries = transmissions - self._counted if unacknowledged else probes
        return bool(tries >= TRIES)


CHUNK = 256 * 1024
"""Bytes read at once; they are sent before more is read, so a session holds two chunks."""
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

    A peer that has vanished (copying.py) is looked for at both sides, and its connection is reset.

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
