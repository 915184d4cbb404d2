"""Headroom: whether the process can still allocate memory, asked before work that needs much of it.

A process that may not grow any more (ulimit -v, a strict vm.overcommit_memory) gets no memory from malloc. CPython then
raises MemoryError, but orjson crashes: it expects each object that it makes to be there. So memory is reserved and
released at once before a document is decoded, and a server without headroom answers 503 to all requests, which fails
its liveness probe too. Memory limits of containers are another matter: there the kernel ends the process.

No page of the reservation is touched, so it costs five microseconds whatever its size.
"""

from __future__ import annotations

import logging
import mmap
from typing import Final

logger = logging.getLogger(__name__)

MARGIN: Final = 32 * 1024 * 1024  # bytes for all work that asks for nothing: small objects, answers, other threads
GROWTH: Final = 40  # bytes that a byte of JSON may become: "{}," is a dict, with a node of the parser
EVERY: Final = 16  # requests between two looks
SMALL: Final = 4096  # bytes of a document that is covered by the margin
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def require(size: int) -> None:
    """Raise MemoryError if so many bytes cannot be allocated now."""
    try:
        mmap.mmap(-1, size, flags=_FLAGS).close()
    except OSError:
        raise MemoryError(f"{size} bytes cannot be allocated") from None


def require_for_document(length: int) -> None:
    """Raise MemoryError if a JSON document of that many bytes cannot be decoded now."""
    if length > SMALL:
        require(length * GROWTH + MARGIN)


class Headroom:
    """Looks now and then whether MARGIN can be allocated; at each call, while it cannot. Logs the change."""

    def __init__(self) -> None:
        self._calls = 0
        self._short = False

    def check(self) -> None:
        """Raise MemoryError without headroom."""
        self._calls += 1
        if self._calls < EVERY:
            return
        try:
            require(MARGIN)
        except MemoryError:
            if not self._short:
                logger.error("out of memory: requests are answered with 503 until %d MiB are free", MARGIN >> 20)
            self._short = True
            raise
        if self._short:
            logger.warning("there is memory again")
        self._calls, self._short = 0, False
