"""Metrics of the clocks of the database and of this server, read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.postgres.clocks import Clocks


class ClockCollector(Collector):
    """``clocks``: by the name of the database; of a single one without a label."""

    def __init__(self, clocks: Mapping[str, Clocks]) -> None:
        self._clocks = clocks

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        yield self._family(
            "kubechronicle_database_clock_skew_seconds",
            "Seconds by which the database's clock is ahead of this server's.",
            lambda clocks: clocks.skew,
        )
        yield self._family(
            "kubechronicle_commit_time_ahead_seconds",
            "Seconds by which the newest commit time is in the future.",
            lambda clocks: clocks.ahead,
        )

    def _family(self, name: str, text: str, read: Callable[[Clocks], float]) -> Metric:
        several = len(self._clocks) > 1
        family = GaugeMetricFamily(name, text, labels=["database"] if several else [])
        for database, clocks in self._clocks.items():
            family.add_metric([database] if several else [], read(clocks))
        return family
