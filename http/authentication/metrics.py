"""Metrics of authentication, under kube-apiserver's names.

Plain numbers, collected when /metrics is read: prometheus-client's own counters take longer than a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.measures import Histogram, histogram_family

SUCCESS, FAILURE, ERROR = "success", "failure", "error"
"""Results of an attempt: a user; no credential although one is required; a wrong credential."""

BUCKETS: Final = tuple(0.001 * 2**power for power in range(15))

HOUR, DAY = 3600.0, 86400.0
EXPIRATION_BUCKETS: Final = (
    0.0, HOUR / 2, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 180 * DAY,
    360 * DAY,
)  # fmt: skip

# User names that are label values. Other users are grouped, so that clients can't create time series.
KNOWN_NAMES: Final = frozenset(
    {"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}
)

ACCOUNT_TOKENS: Final[Mapping[str, str]] = {
    "serviceaccount_legacy_tokens": "Cumulative legacy service account tokens used",
    "serviceaccount_stale_tokens": "Cumulative stale projected service account tokens used",
    "serviceaccount_valid_tokens": "Cumulative valid projected service account tokens used",
    "serviceaccount_legacy_auto_token_uses": "Cumulative auto-generated legacy tokens used",
    "serviceaccount_legacy_manual_token_uses": "Cumulative manually created legacy tokens used",
    "serviceaccount_invalid_legacy_auto_token_uses": "Cumulative invalid auto-generated legacy tokens used",
}
"""Counters in ``AuthenticationMetrics.tokens``, with their help text; each name gets _total."""


class CacheMetrics:
    """Metrics of one TokenCache."""

    def __init__(self) -> None:
        self.requests = {"hit": Histogram(), "miss": Histogram()}
        self.fetches = {"ok": 0, "error": 0}
        self.in_flight = self.blocked = 0

    def looked(self, hit: bool, seconds: float) -> None:
        self.requests["hit" if hit else "miss"].add(seconds)

    def fetched(self, good: bool) -> None:
        self.fetches["ok" if good else "error"] += 1


class AuthenticationMetrics(Collector):
    """Metrics of an AuthenticationChain.

    ``succeeded``, ``seen``: note the seconds of an attempt that found a user, and the user's name, without a call of
    Python. ``fold`` counts them.
    ``caches``: metrics that are reported as one sum
    ``tokens``: uses of service account tokens, by counter
    ``remaining``: remaining lifetime of client certificates at their use
    """

    def __init__(self) -> None:
        self.caches: list[CacheMetrics] = []
        self.tokens: Counter[str] = Counter()
        self.remaining = Histogram(EXPIRATION_BUCKETS)
        self._attempts = {result: Histogram(BUCKETS) for result in (SUCCESS, FAILURE, ERROR)}
        self._users: Counter[str] = Counter()
        self._seen: list[str] = []
        self.succeeded = self._attempts[SUCCESS].note
        self.seen = self._seen.append

    def failed(self, result: str, seconds: float) -> None:
        """Count an attempt without a user: FAILURE or ERROR."""
        self._attempts[result].add(seconds)

    def fold(self) -> None:
        """Count what was noted."""
        for name, number in Counter(self._seen).items():
            self._users[name if name in KNOWN_NAMES else "email_id" if "@" in name else "other"] += number
        self._seen.clear()
        self.remaining.fold()
        for attempts in self._attempts.values():
            attempts.fold()

    def collect(self) -> Iterable[Metric]:
        self.fold()
        users = {name: float(count) for name, count in self._users.items()}
        help_text = "Counter of authenticated requests broken out by username."
        yield _bare("authenticated_user_requests", help_text, "username", users)
        attempts = {result: seconds.number for result, seconds in self._attempts.items()}
        nonzero = {result: count for result, count in attempts.items() if count}
        yield _bare("authentication_attempts", "Counter of authenticated attempts.", "result", nonzero)
        help_text = "Authentication duration in seconds broken out by result."
        yield _histogram("authentication_duration_seconds", help_text, "result", self._attempts)
        help_text = "Distribution of the remaining lifetime on the certificate used to authenticate a request."
        name = "apiserver_client_certificate_expiration_seconds"
        yield histogram_family(name, help_text, (), {(): self.remaining})
        for name, text in ACCOUNT_TOKENS.items():
            yield CounterMetricFamily(name, text, value=self.tokens[name])
        if self.caches:
            yield from self._of_caches()

    def _of_caches(self) -> Iterable[Metric]:
        fetches = CounterMetricFamily("authentication_token_cache_fetch", "", labels=["status"])
        active = GaugeMetricFamily("authentication_token_cache_active_fetch_count", "", labels=["status"])
        requests = CounterMetricFamily("authentication_token_cache_request", "", labels=["status"])
        for status in ("ok", "error"):
            fetches.add_metric([status], sum(cache.fetches[status] for cache in self.caches))
        active.add_metric(["in_flight"], sum(cache.in_flight for cache in self.caches))
        active.add_metric(["blocked"], sum(cache.blocked for cache in self.caches))
        together = {}
        for status in ("hit", "miss"):
            together[status] = both = Histogram()
            for cache in self.caches:
                both.merge(cache.requests[status])
            requests.add_metric([status], both.number)
        yield from (fetches, active, requests)
        yield _histogram("authentication_token_cache_request_duration_seconds", "", "status", together)


def _bare(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a counter whose name does not end in _total (metrics.BARE_COUNTERS)."""
    metric = Metric(name, help_text, "counter")
    for value, count in values.items():
        metric.add_sample(name, {label: value}, count)
    return metric


def _histogram(name: str, help_text: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    return histogram_family(
        name, help_text, (label,), {(value,): each for value, each in values.items() if each.number}
    )
