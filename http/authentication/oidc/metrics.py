"""Metrics of JWT authenticators, under kube-apiserver's names, and a log that bad tokens can't flood."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kubechronicle.http.reloading import sha256_label

log = logging.getLogger(__name__)

BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_PREFIX: Final = "apiserver_authentication_jwt_authenticator"

# Rejected tokens that are logged at once, and seconds after which one more may be.
BURST: Final = 10
LOG_INTERVAL: Final = 1.0
MAX_REASON: Final = 500


class JwtMetrics(Collector):
    """Metrics of all issuers. ``server``: the name of this server in the cluster. ``tells_keys``: and their keys."""

    def __init__(self, server: str, *, tells_keys: bool = True) -> None:
        self._server = sha256_label(server)
        self._latency = Histogram(
            f"{_PREFIX}_latency_seconds",
            "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for "
            "cache miss only (i.e. when the token is not found in the cache).",
            ("result", "jwt_issuer_hash"),
            buckets=BUCKETS,
            registry=None,
        )
        self._tells_keys = tells_keys
        self._fetched: dict[tuple[str, str], float] = {}  # by result and issuer's hash
        self._key_sets: dict[str, str] = {}

    def register(self, registry: CollectorRegistry) -> None:
        """Register all metrics."""
        registry.register(self._latency)
        registry.register(self)

    def authenticated(self, issuer: str, seconds: float, *, success: bool) -> None:
        """Observe the decision about a token that was not cached."""
        result = "success" if success else "failure"
        self._latency.labels(result, sha256_label(issuer)).observe(seconds)

    def fetched(self, issuer: str, document: bytes | None) -> None:
        """Implement provider.KeyMetrics."""
        if not self._tells_keys:
            return
        name = sha256_label(issuer)
        self._fetched["failure" if document is None else "success", name] = time.time()
        if document is not None:
            self._key_sets[name] = sha256_label(document)

    def keep_only(self, issuers: Iterable[str]) -> None:
        """Drop the metrics of other issuers."""
        names = set(map(sha256_label, issuers))
        self._fetched = {key: moment for key, moment in self._fetched.items() if key[1] in names}
        self._key_sets = {name: label for name, label in self._key_sets.items() if name in names}

    def collect(self) -> Iterable[Metric]:
        fetched = GaugeMetricFamily(
            f"{_PREFIX}_jwks_fetch_last_timestamp_seconds",
            "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt "
            "issuer for the JWT authenticator.",
            labels=["result", "jwt_issuer_hash", "apiserver_id_hash"],
        )
        for (result, issuer), moment in self._fetched.items():
            fetched.add_metric([result, issuer, self._server], moment)
        info = GaugeMetricFamily(
            f"{_PREFIX}_jwks_fetch_last_key_set_info",
            "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server "
            "identity and jwt issuer.",
            labels=["jwt_issuer_hash", "apiserver_id_hash", "hash"],
        )
        for issuer, label in self._key_sets.items():
            info.add_metric([issuer, self._server, label], 1)
        return [fetched, info]


class RefusalLog:
    """A log of rejected tokens: BURST lines at once, then one each LOG_INTERVAL seconds. It never shows a token."""

    def __init__(self) -> None:
        self._allowance, self._counted_at = float(BURST), time.monotonic()
        self._suppressed = 0

    def refused(self, issuer: str, why: str) -> None:
        """Log the rejection of a token of this issuer."""
        now = time.monotonic()
        self._allowance = min(self._allowance + (now - self._counted_at) / LOG_INTERVAL, float(BURST))
        self._counted_at = now
        if self._allowance < 1:
            self._suppressed += 1
            return
        self._allowance -= 1
        suppressed, self._suppressed = self._suppressed, 0
        more = {"suppressed": suppressed} if suppressed else {}
        log.warning("Refused a token", extra={"issuer": issuer, "err": why[:MAX_REASON], **more})
