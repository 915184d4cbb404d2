"""Metrics of the authorization of requests, under kube-apiserver's names.

Decisions for impersonation, admission and reviews are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.histograms import Histogram, add_to
from kubechronicle.http.authentication.metrics import BUCKETS
from kubechronicle.http.authorization.decision import Decision, Verdict

RESULTS: Final = {Decision.ALLOW: "allowed", Decision.DENY: "denied", Decision.NO_OPINION: "no-opinion"}
ERROR: Final = "error"


class AttemptMetrics(Collector):
    """Attempts by result. ``allowed``: notes the seconds of one that allows the request, without a call of Python."""

    def __init__(self) -> None:
        self._attempts = {result: Histogram(BUCKETS) for result in (*RESULTS.values(), ERROR)}
        self.allowed = self._attempts[RESULTS[Decision.ALLOW]].note
        self.fold = self._attempts[RESULTS[Decision.ALLOW]].fold

    def refused(self, verdict: Verdict, seconds: float) -> None:
        """Count a decision that does not allow the request."""
        self._attempts[ERROR if verdict.error else RESULTS[verdict.decision]].add(seconds)

    def collect(self) -> Iterable[Metric]:
        attempts = CounterMetricFamily(
            "authorization_attempts",
            "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', "
            "'no-opinion' or 'error'.",
            labels=["result"],
        )
        seconds = HistogramMetricFamily(
            "authorization_duration_seconds",
            "Authorization duration in seconds broken out by result.",
            labels=["result"],
        )
        for result, durations in self._attempts.items():
            if durations.number:
                attempts.add_metric([result], durations.number)
                add_to(seconds, [result], durations)
        return [attempts, seconds]
