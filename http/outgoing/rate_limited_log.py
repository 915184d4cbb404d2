"""A log for the failures of another server: at once, then one line each INTERVAL seconds.

Clients can cause failures with every request, and must not fill the log.
"""

from __future__ import annotations

import logging
import time
from typing import Final

INTERVAL: Final = 10.0


class RateLimitedLog:
    def __init__(self, log: logging.Logger, message: str) -> None:
        self._log = log
        self._message = message
        self._next = 0.0
        self._suppressed = 0

    def error(self, why: str, **extra: str) -> None:
        """Log the message with ``why``, which is one line without a credential. Count it if it comes too soon."""
        now = time.monotonic()
        if now < self._next:
            self._suppressed += 1
            return
        self._next = now + INTERVAL
        suppressed, self._suppressed = self._suppressed, 0
        more = {"suppressed": suppressed} if suppressed else {}
        self._log.error(self._message, extra={"err": why, **extra, **more})
