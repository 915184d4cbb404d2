"""Metrics of the clocks of the database and of this server, read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.postgres.clocks import Clocks


class ClockCollector(Collector):
    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "kubechronicle_database_clock_skew_seconds",
            "Seconds by which the database's clock is ahead of this server's.",
            value=self._clocks.skew,
        )
        yield GaugeMetricFamily(
            "kubechronicle_commit_time_ahead_seconds",
            "Seconds by which the newest commit time is in the future.",
            value=self._clocks.ahead,
        )
