"""Ids of batches: UUIDs of version 7 (RFC 9562), each greater than the one before, so that the index of batches grows
at its end, where its page is at hand, and not at a random place for each. 62 random bits tell servers apart.
"""

from __future__ import annotations

import secrets
import time
from uuid import UUID

_VERSION_AND_VARIANT = 0x7 << 76 | 0b10 << 62


class BatchIds:
    """Those of one server: ``next()`` is unique, and greater than all before."""

    def __init__(self) -> None:
        self._server = secrets.randbits(62)
        self._stamp = 0

    def next(self) -> UUID:
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        # 12 bits of the millisecond's fraction follow it (RFC 9562, 6.2, method 3); a clock that stands still is led.
        self._stamp = stamp = max(self._stamp + 1, milliseconds << 12 | rest * 4096 // 1_000_000)
        return UUID(int=(stamp >> 12) << 80 | (stamp & 0xFFF) << 64 | _VERSION_AND_VARIANT | self._server)
