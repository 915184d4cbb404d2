"""Telling the log that somebody does not answer: at once, then now and then, for as long as that lasts. Who asks for
nothing but failures, and clients can, must not fill the log."""

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
        self._untold = 0

    def tell(self, why: str, **extra: str) -> None:
        """``why`` in one line, without a credential."""
        now = time.monotonic()
        if now < self._next:
            self._untold += 1
            return
        self._next = now + INTERVAL
        untold, self._untold = self._untold, 0
        self._log.error(self._message, extra={"err": why, **extra, **({"more_like_it": untold} if untold else {})})
