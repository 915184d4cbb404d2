"""How the authorization of requests goes, by kube-apiserver's names, read when /metrics is asked for.

What impersonation, admission and reviews ask the authorizers besides is not counted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.http.authentication.metrics import BUCKETS, Durations
from kubechronicle.http.authorization.decision import Decision, Verdict

RESULTS: Final = {Decision.ALLOW: "allowed", Decision.DENY: "denied", Decision.NO_OPINION: "no-opinion"}
ERROR: Final = "error"


class AttemptMetrics(Collector):
    def __init__(self) -> None:
        self._attempts = {result: Durations(BUCKETS) for result in (*RESULTS.values(), ERROR)}

    def observe(self, verdict: Verdict, seconds: float) -> None:
        """One request was decided about in so many seconds."""
        failed = verdict.error and verdict.decision is not Decision.ALLOW
        self._attempts[ERROR if failed else RESULTS[verdict.decision]].add(seconds)

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
        for result, found in self._attempts.items():
            number = sum(found.counts)
            if number:
                attempts.add_metric([result], number)
                seconds.add_metric([result], found.buckets(), found.total)
        return [attempts, seconds]
