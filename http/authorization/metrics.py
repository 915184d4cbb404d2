"""Metrics of the authorization of requests, under kube-apiserver's names.

Decisions for impersonation, admission and reviews are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.measures import Histogram, add_to, histogram_family
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


# -- impersonation metrics ---------------------------------------------------------------------------------------------
#
# Metrics of impersonation, under kube-apiserver's names: attempts, and the checks of rights that they take.


LABELS = ("mode", "decision")
Key = tuple[str, str]


class ImpersonationMetrics(Collector):
    """``attempts``: a refused one has no mode, because several may have been tried. ``checks``: of single rights; one
    that is made again, with the answer of an external authorizer to another, counts again."""

    def __init__(self) -> None:
        self.attempts: dict[Key, Histogram] = {}
        self.checks: dict[Key, Histogram] = {}

    def attempted(self, mode: str, seconds: float) -> None:
        """Count an attempt by the name of the mode that allowed it; "" if it was refused."""
        _add(self.attempts, (mode, "allowed" if mode else "denied"), seconds)

    def checked(self, mode: str, seconds: float, *, allowed: bool) -> None:
        """Count the check of one right."""
        _add(self.checks, (mode, "allowed" if allowed else "denied"), seconds)

    def collect(self) -> Iterable[Metric]:
        prefix = "apiserver_impersonation"
        yield from _families(f"{prefix}_attempts", "impersonation attempts", self.attempts)
        yield from _families(
            f"{prefix}_authorization_attempts",
            "authorization checks made by the impersonation handler",
            self.checks,
        )


def _add(known: dict[Key, Histogram], key: Key, seconds: float) -> None:
    durations = known.get(key)
    if durations is None:
        durations = known[key] = Histogram(BUCKETS)
    durations.add(seconds)


def _families(name: str, of: str, known: Mapping[Key, Histogram]) -> Iterable[Metric]:
    total = CounterMetricFamily(name, f"Total number of {of} split by mode and decision.", labels=LABELS)
    for key, durations in list(known.items()):
        total.add_metric(key, durations.number)
    text = f"Latency of {of} in seconds split by mode and decision."
    return total, histogram_family(f"{name}_duration_seconds", text, LABELS, known)


# -- match condition metrics -------------------------------------------------------------------------------------------
#
# Metrics of match conditions, under kube-apiserver's names (k8s.io/apiserver/pkg/authorization/cel).


MATCH_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)


@dataclass(slots=True)
class ConditionMetrics:
    """Metrics of one authorizer. ``seconds``: of evaluations of all conditions."""

    seconds: Histogram = field(default_factory=lambda: Histogram(MATCH_BUCKETS))
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
