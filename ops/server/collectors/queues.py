"""Metrics of the queues of control loops, under the names that client-go gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.large_work import LargeWork
from kubechronicle.actors.queue_measures import QueueMeasures
from kubechronicle.eventlog.measures import add_to


class QueueCollector(Collector):
    """``queues``: the measures by the name of the loop."""

    def __init__(self, queues: Mapping[str, QueueMeasures]) -> None:
        self._queues = queues

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        now = trio.current_time()
        adds = CounterMetricFamily("workqueue_adds", "Keys added to the queue.", labels=["name"])
        retries = CounterMetricFamily("workqueue_retries", "Keys that failed and return later.", labels=["name"])
        depth = GaugeMetricFamily("workqueue_depth", "Keys in the queue.", labels=["name"])
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds of all keys in process.", labels=["name"]
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Seconds of the key longest in process.", labels=["name"]
        )
        queued = HistogramMetricFamily(
            "workqueue_queue_duration_seconds", "Seconds that keys wait in the queue.", labels=["name"]
        )
        worked = HistogramMetricFamily(
            "workqueue_work_duration_seconds", "Seconds that a key is in process.", labels=["name"]
        )
        for name, found in self._queues.items():
            running = [now - since for since in found.in_process.values()]
            adds.add_metric([name], found.adds)
            retries.add_metric([name], found.retries)
            depth.add_metric([name], len(found.waiting))
            unfinished.add_metric([name], sum(running))
            longest.add_metric([name], max(running, default=0.0))
            add_to(queued, [name], found.queued)
            add_to(worked, [name], found.worked)
        yield from (adds, retries, depth, unfinished, longest, queued, worked)


# -- large work --------------------------------------------------------------------------------------------------------
#
# Metrics of large work (actors/large_work.py), by lane: who waits, how long, and how much is computed.


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
