"""Metrics of sessions and of logs, under kube-apiserver's names.

Source: k8s.io/apiserver ``pkg/util/proxy/metrics``, k8s.io/kubernetes ``pkg/registry/core/pod/rest/metrics.go``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class StreamMetrics(Collector):
    """Sessions of exec, attach and port-forward by what carries them, and requests for logs."""

    def __init__(self) -> None:
        self._routes: Counter[tuple[str, str]] = Counter()
        self._translated: Counter[str] = Counter()
        self._tunnelled: Counter[str] = Counter()
        self._logs: Counter[str] = Counter()
        self._unverified = 0

    def routed(self, subresource: str, *, to_kubelet: bool) -> None:
        """Count a session. ``to_kubelet``: the kubelet understands WebSockets. SPDY sessions count, too, as there."""
        self._routes[subresource, "proxied_to_kubelet" if to_kubelet else "translated_at_apiserver"] += 1

    def translated(self, code: int) -> None:
        """Count the end of a session that was translated to SPDY, with the code of its outcome."""
        self._translated[str(code)] += 1

    def tunnelled(self, code: int) -> None:
        """Count a port-forward over WebSocket, with the code of the answer to its upgrade."""
        self._tunnelled[str(code)] += 1

    def log_requested(self, *, insecure: bool) -> None:
        """Count a request for a log. ``insecure``: the client does without a verified kubelet."""
        self._logs["skip_tls_allowed" if insecure else "enforce_tls"] += 1

    def log_unverified(self) -> None:
        """Count a log that failed because the kubelet's certificate was not accepted."""
        self._unverified += 1

    def collect(self) -> Iterable[Metric]:
        routes = CounterMetricFamily(
            "apiserver_websocket_streaming_requests",
            "Sessions of exec, attach and portforward by the side that understands WebSockets.",
            labels=("subresource", "proxy_type"),
        )
        for labels, number in self._routes.items():
            routes.add_metric(labels, number)
        yield routes
        yield _by_label(
            "apiserver_stream_translator_requests", "Sessions translated to SPDY.", "code", self._translated
        )
        yield _by_label("apiserver_stream_tunnel_requests", "Port-forwards over WebSocket.", "code", self._tunnelled)
        yield _by_label(
            "kube_apiserver_pod_logs_insecure_backend",
            "Requests for pods/log by the verification of the kubelet: enforce_tls, skip_tls_allowed.",
            "usage",
            self._logs,
        )
        yield CounterMetricFamily(
            "kube_apiserver_pod_logs_backend_tls_failure",
            "Requests for pods/log that failed because the kubelet's certificate was not accepted.",
            value=self._unverified,
        )


def _by_label(name: str, text: str, label: str, numbers: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, number in numbers.items():
        family.add_metric((value,), number)
    return family
