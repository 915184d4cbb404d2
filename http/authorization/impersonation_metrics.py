"""Metrics of impersonation, under kube-apiserver's names: attempts, and the checks of rights that they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.histograms import Histogram, histogram_family
from kubechronicle.http.authentication.metrics import BUCKETS

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
