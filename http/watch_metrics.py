"""Metrics of the events sent to watchers: their number and their sizes, under kube-apiserver's names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.histograms import buckets as cumulative

BOUNDS: Final = tuple(1024 << power for power in range(8))
"""Upper bounds of sizes in bytes."""
LABELS: Final = ("group", "version", "resource")
LIST_LABELS: Final = (*LABELS, "scope")
LIST_BOUNDS: Final = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
"""Upper bounds of the seconds that initial events take, as in kube-apiserver v1.36."""


def bucket_of(frame: bytes) -> int:
    """Return the index of the bucket in which a frame is counted."""
    return bisect_left(BOUNDS, len(frame))


class EventCount:
    """The events of one resource. Many watchers get the same frames, so the caller says in which buckets these are."""

    __slots__ = ("_counts", "_total", "value")

    def __init__(self) -> None:
        self.value = 0
        self._total = 0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, size: int, buckets: Sequence[int]) -> None:
        """Count frames of ``size`` bytes in all."""
        self.value += len(buckets)
        self._total += size
        for bucket in buckets:
            self._counts[bucket] += 1

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        family.add_metric(labels, cumulative(BOUNDS, self._counts), self._total)


class WatchEvents(Collector):
    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], EventCount] = {}

    def of(self, group: str, version: str, resource: str) -> EventCount:
        return self._known.setdefault((group, version, resource), EventCount())

    def collect(self) -> Iterable[Metric]:
        events = CounterMetricFamily("apiserver_watch_events", "Events sent in watch clients.", labels=LABELS)
        sizes = HistogramMetricFamily(
            "apiserver_watch_events_sizes", "Watch event size distribution in bytes", labels=LABELS
        )
        for labels, count in self._known.items():
            events.add_metric(labels, count.value)
            if count.value:
                count.add_to(sizes, labels)
        return events, sizes
