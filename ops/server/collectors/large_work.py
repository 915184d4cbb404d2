"""Metrics of large work (actors/large_work.py), by lane: who waits, how long, and how much is computed."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.large_work import LargeWork

_NAME = "kubechronicle_large_work_"


class LargeWorkCollector(Collector):
    def __init__(self, large: LargeWork) -> None:
        self._large = large

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        lanes = self._large.statistics()
        waiting = GaugeMetricFamily(_NAME + "waiting", "Large requests that wait for a place.", labels=["lane"])
        pieces_waiting = GaugeMetricFamily(
            _NAME + "pieces_waiting", "Pieces that wait for the thread.", labels=["lane"]
        )
        taken = GaugeMetricFamily(_NAME + "bytes", "Bytes of the requests that have a place.", labels=["lane"])
        waited = CounterMetricFamily(
            _NAME + "wait_seconds", "Seconds of waits for places and threads.", labels=["lane"]
        )
        pieces = CounterMetricFamily(_NAME + "pieces", "Pieces that ran in the thread.", labels=["lane"])
        computed = CounterMetricFamily(_NAME + "cpu_seconds", "Seconds of CPU of these pieces.", labels=["lane"])
        rejected = CounterMetricFamily(_NAME + "rejected", "Requests rejected because too many wait.", labels=["lane"])
        for name, lane in lanes.items():
            waiting.add_metric([name], lane.waiting)
            pieces_waiting.add_metric([name], lane.pieces_waiting)
            taken.add_metric([name], lane.taken)
            waited.add_metric([name], lane.waited)
            pieces.add_metric([name], lane.pieces)
            computed.add_metric([name], lane.computed)
            rejected.add_metric([name], lane.rejected)
        yield from (waiting, pieces_waiting, taken, waited, pieces, computed, rejected)
