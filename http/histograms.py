"""Histograms of requests. Values are noted first, and counted later, many at once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.values import buckets

MOST_NOTED: Final = 256
"""Values that wait to be counted."""


class Histogram:
    """Numbers of values by upper bound.

    ``note``: notes a value. It is the method of a list, so it takes no call of Python; the caller sees to it that
    ``fold`` is called at least every MOST_NOTED values (Metrics.fold). ``add`` does so itself.
    """

    __slots__ = ("_noted", "_series", "bounds", "note")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._series: list[float] = [0] * (len(bounds) + 1) + [0.0]
        self._noted: list[float] = []
        self.note = self._noted.append

    def add(self, value: float) -> None:
        self._noted.append(value)
        if len(self._noted) >= MOST_NOTED:
            self.fold()

    def fold(self) -> None:
        """Count the values that were noted."""
        buckets.fill(self._series, self.bounds, self._noted)

    @property
    def counts(self) -> list[float]:
        """The number of values for each bound, and of those above all bounds."""
        self.fold()
        return self._series[:-1]

    @property
    def total(self) -> float:
        """The sum of all values."""
        self.fold()
        return self._series[-1]

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds."""
        self.fold()
        other.fold()
        self._series[:] = map(operator.add, self._series, other._series)

    def replace(self, before: Histogram, after: Histogram) -> None:
        """Put values in the place of others, which were added before. All have the same bounds."""
        self.merge(after)
        before.fold()
        self._series[:] = map(operator.sub, self._series, before._series)
