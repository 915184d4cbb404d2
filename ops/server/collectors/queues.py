"""Metrics of the queues of control loops, under the names that client-go gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.queue_measures import QueueMeasures
from kubechronicle.eventlog.histograms import add_to


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
