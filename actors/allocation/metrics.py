"""Metrics of the allocators. ``scope``: "static" for requested values, "dynamic" for chosen ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.eventlog.measures import Histogram

STATIC: Final = "static"
DYNAMIC: Final = "dynamic"


@dataclass(slots=True)
class AllocationMetrics:
    """Counts of allocations and failures. A write that is prepared again is counted again."""

    addresses: Counter[tuple[str, str]] = field(default_factory=Counter)  # (range, scope)
    address_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    address_seconds: dict[tuple[str], Histogram] = field(default_factory=dict)  # by range
    ports: Counter[str] = field(default_factory=Counter)  # by scope
    port_errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RepairMetrics:
    """Errors found by a repair loop, by kind, and the number of its failed passes."""

    errors: Counter[str] = field(default_factory=Counter)
    failures: int = 0
