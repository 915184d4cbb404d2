"""Peers that have vanished: a machine without power, or a network that is cut. No packet tells of it.

TCP's keep-alive finds such a peer while nothing is on the way to it. Otherwise, the system sends the bytes again for
about a quarter of an hour. TCP_USER_TIMEOUT would shorten that, but it also ends the connection of a peer that is there
and does not read. So it is for requests alone, which no server leaves unread. `Silence` tells both apart:

    the peer                        answers        the system counts
    is there                        all bytes      nothing
    is there, and does not read     probes         probes, from zero again after each answer
    has vanished                    nothing        transmissions or probes, and the time since the last answer

Without TCP_INFO (systems other than Linux) no peer is known to have vanished.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import Final

import trio

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
