"""Metrics left out, and label values left out, as an operator wishes (--disabled-metrics, --allow-metric-labels)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

UNEXPECTED: Final = "unexpected"
"""kube-apiserver's value in the place of one that is not allowed."""


@dataclass(frozen=True, slots=True)
class MetricFilter:
    """``disabled``: names of metrics that are not shown.
    ``allowed``: the values of a label that are shown, by (metric, label); other values become "unexpected"."""

    disabled: frozenset[str] = frozenset()
    allowed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def apply(self, metrics: list[Metric]) -> list[Metric]:
        """Return the metrics that are shown, with their labels. The samples of a metric may be replaced."""
        if not (self.disabled or self.allowed):
            return metrics
        shown = [metric for metric in metrics if not self.disabled.intersection(_names(metric))]
        for metric in shown:
            labels = {label: values for (name, label), values in self.allowed.items() if name in _names(metric)}
            if labels:
                metric.samples = list(_merged(metric.samples, labels))
        return shown


def _names(metric: Metric) -> tuple[str, str]:
    """Return the names of a metric: prometheus-client takes _total from those of counters."""
    return metric.name, f"{metric.name}_total"


def _merged(samples: Iterable[Sample], allowed: Mapping[str, frozenset[str]]) -> Iterable[Sample]:
    """Yield the samples with values that are not allowed replaced. Those that become equal are added."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        labels = {
            label: value if label not in allowed or value in allowed[label] else UNEXPECTED
            for label, value in sample.labels.items()
        }
        key = sample.name, tuple(sorted(labels.items()))
        before = sums.get(key)
        sums[key] = sample._replace(labels=labels, value=sample.value + (before.value if before is not None else 0))
    return sums.values()
