"""Metrics of match conditions, under kube-apiserver's names (k8s.io/apiserver/pkg/authorization/cel)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.histograms import Histogram, histogram_family

BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)


@dataclass(slots=True)
class ConditionMetrics:
    """Metrics of one authorizer. ``seconds``: of evaluations of all conditions."""

    seconds: Histogram = field(default_factory=lambda: Histogram(BUCKETS))
    errors: int = 0
    exclusions: int = 0


class MatchConditionMetrics(Collector):
    """Metrics by the name of the authorizer. They outlive a change of the configuration."""

    def __init__(self) -> None:
        self._of: dict[str, ConditionMetrics] = {}

    def of(self, name: str) -> ConditionMetrics:
        return self._of.setdefault(name, ConditionMetrics())

    def collect(self) -> Iterable[Metric]:
        labels = ["type", "name"]
        errors = CounterMetricFamily(
            "apiserver_authorization_match_condition_evaluation_errors",
            "Total number of errors when an authorization webhook encounters a match condition error split by "
            "authorizer type and name.",
            labels=labels,
        )
        exclusions = CounterMetricFamily(
            "apiserver_authorization_match_condition_exclusions",
            "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
            labels=labels,
        )
        seconds = histogram_family(
            "apiserver_authorization_match_condition_evaluation_seconds",
            "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
            labels,
            {("Webhook", name): metrics.seconds for name, metrics in self._of.items()},
        )
        for name, metrics in self._of.items():
            of = ["Webhook", name]
            errors.add_metric(of, metrics.errors)
            exclusions.add_metric(of, metrics.exclusions)
        return [errors, exclusions, seconds] if self._of else []
