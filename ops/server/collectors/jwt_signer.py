"""Metrics of an external signer of service account tokens, with kube-apiserver's names."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

PREFIX: Final = "apiserver_externaljwt"
NOT_GRPC: Final = "unknown-non-grpc"
"""The code of an error that is not one of gRPC."""
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class SignerMetrics:
    """Counters of the calls. ``dated``: the signer's time of its keys."""

    def __init__(self) -> None:
        self._fetches = Counter(
            f"{PREFIX}_fetch_keys_request_total", "Total attempts at syncing supported JWKs", ["code"], registry=None
        )
        self._fetched_at = Gauge(
            f"{PREFIX}_fetch_keys_success_timestamp",
            "Unix Timestamp in seconds of the last successful FetchKeys request",
            registry=None,
        )
        self.dated = Gauge(
            f"{PREFIX}_fetch_keys_data_timestamp",
            "Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external "
            "signer",
            registry=None,
        )
        self.signed = Counter(f"{PREFIX}_sign_request_total", "Total attempts at signing JWT", ["code"], registry=None)
        self.seconds = Histogram(
            f"{PREFIX}_request_duration_seconds",
            "Request duration and time for calls to external-jwt-signer",
            ["method", "code"],
            buckets=BUCKETS,
            registry=None,
        )

    def fetched(self, code: str) -> None:
        """Count a fetch of the keys."""
        self._fetches.labels(code).inc()
        if code == "OK":
            self._fetched_at.set_to_current_time()

    def collectors(self) -> list[Collector]:
        """Return all metrics."""
        return [self._fetches, self._fetched_at, self.dated, self.signed, self.seconds]
