"""The seconds in Retry-After of rejected requests, by priority level (k8s.io/apiserver, dropped_requests_tracker.go).

It doubles while more than three requests a second are rejected, up to 32, and falls by one a second when there are few.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST: Final = 32
FEW: Final = 3


class RetryAfter:
    """The rejected requests of one level, counted by second."""

    def __init__(self) -> None:
        self.seconds = 1
        self._history: deque[tuple[int, int]] = deque()  # (second, rejected requests)
        self._second = 0
        self._count = 0
        self._doubled = 0

    def note(self, now: float) -> None:
        """Count a rejected request."""
        second = int(now)
        if second == self._second:
            self._count += 1
            return
        self._history.append((self._second, self._count))
        while self._history and second - self._history[0][0] > min(2 * self.seconds, MOST):
            self._history.popleft()
        self._second, self._count = second, 1
        self._adjust(second)

    def _adjust(self, second: int) -> None:
        rejected = sum(count for at, count in self._history if second - at <= self.seconds)
        if second - self._doubled >= self.seconds and rejected >= FEW * self.seconds:
            self.seconds = min(2 * self.seconds, MOST)
            self._doubled = second
        elif rejected < self.seconds and self.seconds > 1:
            self.seconds -= 1
