"""Batch ids: UUIDs of version 7 (RFC 9562) in ascending order.

The index of batches therefore grows at its end, on a cached page, and not at random pages. 62 random bits distinguish
servers.
"""

from __future__ import annotations

import secrets
import time
from uuid import UUID

_VERSION_AND_VARIANT = 0x7 << 76 | 0b10 << 62


class BatchIds:
    """The ids of one server: ``next()`` is unique, and greater than all before."""

    def __init__(self) -> None:
        self._server = secrets.randbits(62)
        self._stamp = 0

    def next(self) -> UUID:
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        # The millisecond is followed by 12 bits of its fraction (RFC 9562, 6.2, method 3). Incremented if the clock
        # stops.
        self._stamp = stamp = max(self._stamp + 1, milliseconds << 12 | rest * 4096 // 1_000_000)
        return UUID(int=(stamp >> 12) << 80 | (stamp & 0xFFF) << 64 | _VERSION_AND_VARIANT | self._server)
