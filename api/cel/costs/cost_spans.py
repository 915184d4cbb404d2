"""Spans: sizes and costs known only within bounds. The bounds are unsigned 64-bit numbers that saturate.

Source: cel-go ``checker/cost.go`` (SizeEstimate, CostEstimate).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MOST: Final = 2**64 - 1


class CostSpan(NamedTuple):
    """At least ``least``, at most ``most``."""

    least: int
    most: int

    def plus(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def scaled(self, factor: float) -> CostSpan:
        """Return the span times a factor, rounded up."""
        return CostSpan(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least, other.least), max(self.most, other.most))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return MOST if product >= float(2**64) else math.ceil(product)


def exactly(number: int) -> CostSpan:
    return CostSpan(number, number)


UNKNOWN: Final = CostSpan(0, MOST)
NOTHING: Final = exactly(0)
ONE: Final = exactly(1)
EMPTY: Final = CostSpan(MOST, 0)
"""The start of a union."""
