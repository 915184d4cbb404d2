"""The server's metrics, exposed with prometheus-client.

A metric that kube-apiserver has, too, has its name; others are named kubechronicle_*.

Metrics of every request are plain numbers, collected when /metrics is requested: prometheus-client's counters take a
lock each. Of the other metrics, the child of each label combination is looked up once and kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kubechronicle.api.meta.request_info import VERB_OF_METHOD, RequestInfo
from kubechronicle.http.authorization.metrics import AttemptMetrics
from kubechronicle.http.streaming.metrics import StreamMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# A part of kube-apiserver's buckets for apiserver_request_duration_seconds, enough for a dashboard.
DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 15, 30, 60)
SIZE_BUCKETS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
# kube-apiserver's counters whose names lack _total, which prometheus-client adds.
BARE_COUNTERS = (
    "apiserver_egress_dialer_dial_failure_count",
    "authenticated_user_requests",
    "authentication_attempts",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
)
KNOWN_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric that is read when /metrics is requested.

    ``counter``: True if it only grows.
    ``label``: the name of its label; "" for none.
    ``values``: the value for each label value.
    """

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


class _FunctionCollector(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


class _Labelled(CollectorRegistry):
    """The metrics of another registry, with the number of the process as a label."""

    def __init__(self, inner: CollectorRegistry, worker: int) -> None:
        super().__init__()
        self._inner = inner
        self._label = {"worker": str(worker)}

    def collect(self) -> Iterable[Metric]:
        for metric in self._inner.collect():
            metric.samples = [sample._replace(labels={**sample.labels, **self._label}) for sample in metric.samples]
            yield metric


class _Histogram:
    """Numbers of values by upper bound, the last one for those above all bounds."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        if not any(self._counts):
            return  # no request has ended, or they are long-running
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(map(float, self._counts)), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._total)


_Family = TypeVar("_Family", Counter, Gauge)
RequestLabels = tuple[str, str, str, str, str, str, str]
_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope")
_SIZE_LABELS = ("group", "version", "resource", "verb")


def request_labels(info: RequestInfo, method: str, *, dry_run: bool) -> RequestLabels:
    """Return the labels of a request for a resource that is served."""
    if info.is_resource:
        verb = KNOWN_VERBS.get(info.verb, "other")
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    else:
        verb, scope = method if method in VERB_OF_METHOD else "other", ""
    return verb, "All" if dry_run else "", info.group, info.version, info.resource, info.subresource, scope


class Count:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Series:
    """The metrics of requests with the same labels, by the code of the answer."""

    __slots__ = ("codes", "durations", "sizes")

    def __init__(self, sizes: _Histogram) -> None:
        self.codes: dict[int, int] = {}
        self.durations = _Histogram(DURATION_BUCKETS)
        self.sizes = sizes

    def observe(self, code: int, seconds: float, size: int) -> None:
        """Count an answered request."""
        self.ended(code)
        self.durations.add(seconds)
        self.sizes.add(size)

    def ended(self, code: int) -> None:
        """Count the end of a request with a streamed answer."""
        self.codes[code] = self.codes.get(code, 0) + 1


class _Requests(Collector):
    def __init__(self) -> None:
        self.series: dict[RequestLabels, Series] = {}
        self._sizes: dict[tuple[str, ...], _Histogram] = {}
        self.in_flight = {"readOnly": 0, "mutating": 0}

    def of(self, labels: RequestLabels) -> Series:
        series = self.series.get(labels)
        if series is None:
            sizes = self._sizes.setdefault((labels[2], labels[3], labels[4], labels[0]), _Histogram(SIZE_BUCKETS))
            series = self.series[labels] = Series(sizes)
        return series

    def collect(self) -> Iterable[Metric]:
        total = CounterMetricFamily(
            "apiserver_request", "Requests by verb, resource and HTTP response code.", labels=(*_LABELS, "code")
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Response latency in seconds.", labels=_LABELS
        )
        for labels, series in self.series.items():
            for code, number in series.codes.items():
                total.add_metric((*labels, str(code)), number)
            series.durations.add_to(durations, labels)
        sizes = HistogramMetricFamily("apiserver_response_sizes", "Response size in bytes.", labels=_SIZE_LABELS)
        for size_labels, histogram in self._sizes.items():
            histogram.add_to(sizes, size_labels)
        in_flight = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests being handled.", labels=("request_kind",)
        )
        for kind, count in self.in_flight.items():
            in_flight.add_metric((kind,), count)
        return [total, durations, sizes, in_flight]


class Metrics:
    """One per server, not global: tests run several servers in one process.

    ``requests``: returns the Series of labels (verb, dry_run, group, version, resource, subresource, scope).
    ``in_flight``: the number of current requests by kind, counted by the filter that limits them.
    ``worker``: the number of this process, if several share a port.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.worker: int | None = None
        self._requests = _Requests()
        self.registry.register(self._requests)
        self.in_flight = self._requests.in_flight
        self.requests = self._requests.of
        self._watchers = Gauge(
            "apiserver_registered_watchers",
            "Number of currently registered watchers.",
            ("group", "version", "kind"),
            registry=self.registry,
        )
        self._watch_events: dict[tuple[str, str, str], Count] = {}
        self.registry.register(_FunctionCollector(self._collect_watch_events))
        self._terminations = Counter(
            "apiserver_request_terminations",
            "Requests ended by the server in self-defence.",
            ("code",),
            registry=self.registry,
        )
        self._long_running = Gauge(
            "apiserver_longrunning_requests",
            "Long-running requests by verb and resource.",
            ("verb", "group", "version", "resource"),
            registry=self.registry,
        )
        self._deprecated = Gauge(
            "apiserver_requested_deprecated_apis",
            "Deprecated APIs that have been requested.",
            ("group", "version", "resource", "subresource", "removed_release"),
            registry=self.registry,
        )
        self.authorizations = AttemptMetrics()
        self.registry.register(self.authorizations)
        self.streams = StreamMetrics()
        self.registry.register(self.streams)
        self._children: dict[tuple[object, ...], object] = {}

    def add_readings(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Add metrics of other parts (log, views, connections), read when /metrics is requested."""
        self.registry.register(_Readings(read))

    def watchers(self, group: str, version: str, kind: str) -> Gauge:
        return self._child("w", self._watchers, group, version, kind)

    def watch_events(self, group: str, version: str, resource: str) -> Count:
        return self._watch_events.setdefault((group, version, resource), Count())

    def _collect_watch_events(self) -> Iterable[Metric]:
        events = CounterMetricFamily(
            "apiserver_watch_events", "Events sent in watch clients.", labels=("group", "version", "resource")
        )
        for labels, count in self._watch_events.items():
            events.add_metric(labels, count.value)
        yield events

    def long_running(self, verb: str, group: str, version: str, resource: str) -> Gauge:
        return self._child("l", self._long_running, verb, group, version, resource)

    def requested_deprecated(
        self, group: str, version: str, resource: str, subresource: str, removed_release: str
    ) -> None:
        """Note a request for a deprecated API; ``removed_release`` is like "1.25", or empty."""
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
        """Return the metrics in Prometheus' text format."""
        text = generate_latest(self.registry if self.worker is None else _Labelled(self.registry, self.worker))
        for name in BARE_COUNTERS:
            text = text.replace(f" {name}_total ".encode(), f" {name} ".encode())
        return text
