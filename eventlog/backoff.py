"""Delays between attempts to reach the database."""

from __future__ import annotations

from collections.abc import Iterator

FIRST_DELAY = 0.05  # seconds: a failover within one machine or a restarted pooler is over in less
LONGEST_DELAY = 2.0  # seconds: the longest that a server takes to notice that the database is back


def delays(first: float = FIRST_DELAY, longest: float = LONGEST_DELAY) -> Iterator[float]:
    """Yield delays without end, doubling from ``first`` to ``longest`` seconds."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)
