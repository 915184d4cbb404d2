"""What the allocators count, for /metrics. ``scope``: "static" what was asked for, "dynamic" what was chosen."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
# Upper bounds in seconds (Prometheus' default buckets).
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Durations:
    """A histogram: how many took up to each bound but longer than the one before, and how long all took together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.total += seconds
        self.counts[bisect_left(BUCKETS, seconds)] += 1


@dataclass(slots=True)
class AllocationMetrics:
    """Claims that succeeded and that failed; a write prepared again claims again."""

    addresses: Counter[tuple[str, str]] = field(default_factory=Counter)  # (range, scope)
    address_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    address_seconds: dict[str, Durations] = field(default_factory=dict)  # by range
    ports: Counter[str] = field(default_factory=Counter)  # by scope
    port_errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RepairMetrics:
    """What a repair loop found wrong, by kind of error, and how many of its passes failed."""

    errors: Counter[str] = field(default_factory=Counter)
    failures: int = 0
