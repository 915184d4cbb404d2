"""Metrics of the allocators. ``scope``: "static" for requested values, "dynamic" for chosen ones."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
# Upper bounds in seconds: Prometheus' default buckets.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Durations:
    """A histogram: the number of durations in each bucket, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.total += seconds
        self.counts[bisect_left(BUCKETS, seconds)] += 1


@dataclass(slots=True)
class AllocationMetrics:
    """Counts of allocations and failures. A write that is prepared again is counted again."""

    addresses: Counter[tuple[str, str]] = field(default_factory=Counter)  # (range, scope)
    address_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    address_seconds: dict[str, Durations] = field(default_factory=dict)  # by range
    ports: Counter[str] = field(default_factory=Counter)  # by scope
    port_errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RepairMetrics:
    """Errors found by a repair loop, by kind, and the number of its failed passes."""

    errors: Counter[str] = field(default_factory=Counter)
    failures: int = 0
