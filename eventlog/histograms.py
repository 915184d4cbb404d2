"""Histograms: numbers of values by upper bound, as Prometheus has them. All parts of a server use these.

Plain numbers, which a collector reads when /metrics is requested: prometheus-client's histograms take a lock each.
Values are noted first, and counted later, many at once.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

MOST_NOTED: Final = 256
"""Values that wait to be counted."""
DEFAULT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: Prometheus' default buckets."""


Labels = TypeVar("Labels", bound=tuple[str, ...])


class Histogram:
    """Numbers of values by upper bound, and their sum.

    ``note``: notes a value. It is the method of a list, so it takes no call of Python; the caller sees to it that
    ``fold`` is called at least every MOST_NOTED values (Metrics.fold). ``add`` does so itself.
    """

    __slots__ = ("_noted", "_series", "bounds", "note")

    def __init__(self, bounds: Sequence[float] = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds
        self._series: list[float] = [0] * (len(bounds) + 1) + [0.0]
        self._noted: list[float] = []
        self.note = self._noted.append

    def add(self, value: float) -> None:
        self._noted.append(value)
        if len(self._noted) >= MOST_NOTED:
            self.fold()

    def add_counted(self, counts: Sequence[float], total: float) -> None:
        """Add values that the caller has counted by bucket. ``total``: their sum."""
        self._series[:] = map(operator.add, self._series, (*counts, total))

    def fold(self) -> None:
        """Count the values that were noted."""
        noted, series = self._noted, self._series
        if not noted:
            return
        series[-1] += sum(noted)
        noted.sort()
        below = 0
        for bucket, bound in enumerate(self.bounds):
            upto = bisect_right(noted, bound)
            series[bucket] += upto - below
            below = upto
        series[-2] += len(noted) - below
        noted.clear()

    @property
    def counts(self) -> list[float]:
        """The number of values for each bound, and of those above all bounds."""
        self.fold()
        return self._series[:-1]

    @property
    def number(self) -> float:
        """The number of all values."""
        return sum(self.counts)

    @property
    def total(self) -> float:
        """The sum of all values."""
        self.fold()
        return self._series[-1]

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds."""
        self.add_counted(other.counts, other.total)

    def replace(self, before: Histogram, after: Histogram) -> None:
        """Put values in the place of others, which were added before. All have the same bounds."""
        self.merge(after)
        before.fold()
        self._series[:] = map(operator.sub, self._series, before._series)


def buckets(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Return the buckets of a metric: each bound with the number of all values up to it."""
    return list(zip([*map(floatToGoString, bounds), "+Inf"], accumulate(map(float, counts)), strict=True))


def add_to(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    """Add the values of a histogram to a metric, under the values of its labels."""
    family.add_metric(list(labels), buckets(histogram.bounds, histogram.counts), histogram.total)


def histogram_family(
    name: str, text: str, labels: Sequence[str], histograms: Mapping[Labels, Histogram]
) -> HistogramMetricFamily:
    """Return a metric with the values of histograms by the values of its labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in list(histograms.items()):
        add_to(family, values, histogram)
    return family
