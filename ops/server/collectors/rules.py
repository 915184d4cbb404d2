"""Metrics of the rules of custom resources (x-kubernetes-validations)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.custom.rules.rule import RuleMeasures
from kubechronicle.eventlog.histograms import Histogram, add_to


class RuleCollector(Collector):
    """``measures``: for the registry of custom resources. A value that two threads add at the same time may be lost."""

    def __init__(self) -> None:
        self._compilation, self._evaluation = Histogram(), Histogram()
        self.measures = RuleMeasures(perf_counter, self._compilation.add, self._evaluation.add)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for name, measured in (("compilation", self._compilation), ("evaluation", self._evaluation)):
            family = HistogramMetricFamily(f"apiserver_cel_{name}_duration_seconds", f"CEL {name} time in seconds.")
            add_to(family, (), measured)
            yield family
