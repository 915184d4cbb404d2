"""Metrics of connections through proxies, with the names of kube-apiserver and of its konnectivity client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.measures import Histogram, histogram_family

DIALER: Final = "apiserver_egress_dialer"
CLIENT: Final = "konnectivity_network_proxy_client"
BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 12.5)
"""Upper bounds in seconds, as kube-apiserver's."""
CONNECT, PROXY = "connect", "proxy"
"""The stages of a dial: the connection to the proxy, and its own to the address."""
_WAY: Final = ("protocol", "transport")

Labels = tuple[str, ...]


class EgressMetrics(Collector):
    """Counts by label values.

    ``starts``, ``failures``: by protocol, transport (and stage). ``packets``: by segment and type. ``tunnel_failures``:
    by reason. ``tunnels``: those that are there now, by status.
    """

    def __init__(self) -> None:
        self.starts: Counter[Labels] = Counter()
        self.failures: Counter[Labels] = Counter()
        self.packets: Counter[Labels] = Counter()
        self.tunnel_failures: Counter[Labels] = Counter()
        self.tunnels: Counter[Labels] = Counter()
        self._durations: dict[Labels, Histogram] = {}

    def observe(self, way: Labels, seconds: float) -> None:
        """Count a connection, and the time that it took."""
        self._durations.setdefault(way, Histogram(BUCKETS)).add(seconds)

    def collect(self) -> Iterable[Metric]:
        yield _counter(
            f"{DIALER}_dial_start", "Dial starts, labeled by the protocol (http-connect or grpc) and transport (tcp or "
            "uds).", _WAY, self.starts,
        )  # fmt: skip
        yield histogram_family(
            f"{DIALER}_dial_duration_seconds", "Dial latency histogram in seconds, labeled by the protocol "
            "(http-connect or grpc), transport (tcp or uds)", _WAY, self._durations,
        )  # fmt: skip
        failures = Metric(
            f"{DIALER}_dial_failure_count", "Dial failure count, labeled by the protocol (http-connect or grpc), "
            "transport (tcp or uds), and stage (connect or proxy). The stage indicates at which stage the dial failed",
            "counter",
        )  # fmt: skip
        for labels, count in self.failures.items():  # its name does not end in _total (http/metrics.py)
            failures.add_sample(failures.name, dict(zip((*_WAY, "stage"), labels, strict=True)), count)
        yield failures
        yield _counter(
            f"{CLIENT}_stream_packets", "Count of packets processed, by segment and packet type (example: from_client, "
            "DIAL_REQ)", ("segment", "packet_type"), self.packets,
        )  # fmt: skip
        yield _counter(
            f"{CLIENT}_dial_failure", "Number of dial failures observed, by reason (example: remote endpoint error)",
            ("reason",), self.tunnel_failures,
        )  # fmt: skip
        tunnels = GaugeMetricFamily(
            f"{CLIENT}_client_connections", "Number of open client connections, by status (Example: dialing)",
            labels=("status",),
        )  # fmt: skip
        for labels, count in self.tunnels.items():
            tunnels.add_metric(labels, count)
        yield tunnels


def _counter(name: str, help_text: str, labels: Labels, counts: Counter[Labels]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
