"""Metrics of the rules of custom resources (x-kubernetes-validations), read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.custom.rules.durations import BOUNDS, COMPILATION, EVALUATION
from kubechronicle.eventlog.histograms import buckets


class RuleCollector(Collector):
    """The durations of compilation and evaluation, which are measured from now on."""

    def __init__(self) -> None:
        COMPILATION.clock = EVALUATION.clock = perf_counter

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for name, measured in (("compilation", COMPILATION), ("evaluation", EVALUATION)):
            family = HistogramMetricFamily(f"apiserver_cel_{name}_duration_seconds", f"CEL {name} time in seconds.")
            family.add_metric((), buckets(BOUNDS, measured.counts), measured.total)
            yield family
