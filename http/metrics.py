"""What the server counts, with prometheus-client. kube-apiserver's names where the notion is the same; what has no
counterpart there is named kubechronicle_*.

Label children are looked up once per combination and kept: prometheus-client's own look-up costs more than the count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.http.authorization.attempts import AttemptFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# kube-apiserver's buckets for apiserver_request_duration_seconds, thinned to what a dashboard tells apart.
DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 30, 60)
SIZE_BUCKETS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
# kube-apiserver's counters whose names lack _total: prometheus-client would add it to the lines that describe them.
BARE_COUNTERS = ("authenticated_user_requests", "authentication_attempts")
KNOWN_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure read when /metrics is asked for: name, help, whether it only grows, value by label value."""

    name: str
    help: str
    counter: bool
    label: str
    values: dict[str, float]


class _Readings(Collector):
    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for reading in self._read():
            family = CounterMetricFamily if reading.counter else GaugeMetricFamily
            metric = family(reading.name, reading.help, labels=[reading.label] if reading.label else None)
            for label, value in reading.values.items():
                metric.add_metric([label] if reading.label else [], value)
            yield metric


class _Labelled(CollectorRegistry):
    """What another registry has, each sample labelled with the process it counts for."""

    def __init__(self, inner: CollectorRegistry, worker: int) -> None:
        super().__init__()
        self._inner = inner
        self._label = {"worker": str(worker)}

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **self._label}) for sample in metric.samples
            ]
            yield metric


_Family = TypeVar("_Family", Counter, Gauge)
_RequestLabels = tuple[str, str, str, str, str, str, str]


class Metrics:
    """One per server; not global, so that several servers live in one process in tests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.worker: int | None = None  # the number of this process, where several answer on one port
        labels = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope")
        self._requests = Counter(
            "apiserver_request", "Requests by verb, resource and HTTP response code.", (*labels, "code"),
            registry=self.registry,
        )  # fmt: skip
        self._durations = Histogram(
            "apiserver_request_duration_seconds", "Response latency in seconds.", labels,
            buckets=DURATION_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._sizes = Histogram(
            "apiserver_response_sizes", "Response size in bytes.", ("group", "version", "resource", "verb"),
            buckets=SIZE_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._watchers = Gauge(
            "apiserver_registered_watchers", "Number of currently registered watchers.", ("group", "version", "kind"),
            registry=self.registry,
        )  # fmt: skip
        self._watch_events = Counter(
            "apiserver_watch_events", "Events sent in watch clients.", ("group", "version", "resource"),
            registry=self.registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "apiserver_current_inflight_requests", "Requests being handled.", ("request_kind",),
            registry=self.registry,
        )  # fmt: skip
        self._terminations = Counter(
            "apiserver_request_terminations", "Requests ended by the server in self-defence.", ("code",),
            registry=self.registry,
        )  # fmt: skip
        self._long_running = Gauge(
            "apiserver_longrunning_requests", "Long-running requests by verb and resource.",
            ("verb", "group", "version", "resource"), registry=self.registry,
        )  # fmt: skip
        self._deprecated = Gauge(
            "apiserver_requested_deprecated_apis", "Deprecated APIs that have been requested.",
            ("group", "version", "resource", "subresource", "removed_release"), registry=self.registry,
        )  # fmt: skip
        self.authorizations = AttemptFigures()
        self.registry.register(self.authorizations)
        self._children: dict[tuple[object, ...], object] = {}
        self._of_requests: dict[tuple[_RequestLabels, int], tuple[Counter, Histogram, Histogram]] = {}

    def add_readings(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Figures that others keep and that are read when asked for (the log, the views, the connections)."""
        self.registry.register(_Readings(read))

    def observe_request(self, labels: _RequestLabels, *, code: int, seconds: float, size: int | None) -> None:
        """Count one answered request. ``labels``: verb, dry_run, group, version, resource, subresource, scope."""
        known = self._of_requests.get((labels, code))
        if known is None:
            known = (
                self._requests.labels(*labels, str(code)),
                self._durations.labels(*labels),
                self._sizes.labels(labels[2], labels[3], labels[4], labels[0]),
            )
            self._of_requests[(labels, code)] = known
        total, duration, sizes = known
        total.inc()
        if size is not None:
            duration.observe(seconds)
            sizes.observe(size)

    def watchers(self, group: str, version: str, kind: str) -> Gauge:
        return self._child("w", self._watchers, group, version, kind)

    def watch_events(self, group: str, version: str, resource: str) -> Counter:
        return self._child("e", self._watch_events, group, version, resource)

    def long_running(self, verb: str, group: str, version: str, resource: str) -> Gauge:
        return self._child("l", self._long_running, verb, group, version, resource)

    def requested_deprecated(
        self, group: str, version: str, resource: str, subresource: str, removed_release: str
    ) -> None:
        """Note that somebody still uses it; ``removed_release`` is as "1.25", or empty."""
        self._child("d", self._deprecated, group, version, resource, subresource, removed_release).set(1)

    def terminated(self, code: int) -> None:
        self._terminations.labels(str(code)).inc()

    def _child(self, tag: str, family: _Family, *labels: str) -> _Family:
        key = (tag, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return cast(_Family, child)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        text = generate_latest(self.registry if self.worker is None else _Labelled(self.registry, self.worker))
        for name in BARE_COUNTERS:
            text = text.replace(f" {name}_total ".encode(), f" {name} ".encode())
        return text
