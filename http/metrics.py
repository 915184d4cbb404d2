"""The server's metrics, exposed with prometheus-client.

A metric that kube-apiserver has, too, has its name; others are named kubechronicle_*.

Metrics of every request are plain numbers, collected when /metrics is requested: prometheus-client's counters take a
lock each. Of the other metrics, the child of each label combination is looked up once and kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubechronicle.actors.pauses import Pauses
from kubechronicle.http.authorization.metrics import AttemptMetrics, ImpersonationMetrics
from kubechronicle.http.request_metrics import LIST_BOUNDS, LIST_LABELS, RequestLabels, Requests, WatchEvents
from kubechronicle.http.streaming.metrics import StreamMetrics

# -- metric filter -----------------------------------------------------------------------------------------------------
#
# Metrics left out, and label values left out, as an operator wishes (--disabled-metrics, --allow-metric-labels).

UNEXPECTED: Final = "unexpected"
"""kube-apiserver's value in the place of one that is not allowed."""


@dataclass(frozen=True, slots=True)
class MetricFilter:
    """``disabled``: names of metrics that are not shown.
    ``allowed``: the values of a label that are shown, by (metric, label); other values become "unexpected"."""

    disabled: frozenset[str] = frozenset()
    allowed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def apply(self, metrics: list[Metric]) -> list[Metric]:
        """Return the metrics that are shown, with their labels. The samples of a metric may be replaced."""
        if not (self.disabled or self.allowed):
            return metrics
        shown = [metric for metric in metrics if not self.disabled.intersection(_names(metric))]
        for metric in shown:
            labels = {label: values for (name, label), values in self.allowed.items() if name in _names(metric)}
            if labels:
                metric.samples = list(_merged(metric.samples, labels))
        return shown


def _names(metric: Metric) -> tuple[str, str]:
    """Return the names of a metric: prometheus-client takes _total from those of counters."""
    return metric.name, f"{metric.name}_total"


def _merged(samples: Iterable[Sample], allowed: Mapping[str, frozenset[str]]) -> Iterable[Sample]:
    """Yield the samples with values that are not allowed replaced. Those that become equal are added."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        labels = {
            label: value if label not in allowed or value in allowed[label] else UNEXPECTED
            for label, value in sample.labels.items()
        }
        key = sample.name, tuple(sorted(labels.items()))
        before = sums.get(key)
        sums[key] = sample._replace(labels=labels, value=sample.value + (before.value if before is not None else 0))
    return sums.values()


# -- metrics -----------------------------------------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# kube-apiserver's counters whose names lack _total, which prometheus-client adds.
BARE_COUNTERS = (
    "apiserver_egress_dialer_dial_failure_count",
    "authenticated_user_requests",
    "authentication_attempts",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
)


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


class NotingCollector(Collector, Protocol):
    """Metrics that requests note; ``fold`` counts these."""

    def fold(self) -> None: ...


_Family = TypeVar("_Family", Counter, Gauge)


class Metrics:
    """One per server, not global: tests run several servers in one process.

    ``requests``: returns the Series of the labels of a request (request_metrics.py).
    ``watch_events``: returns the count of events of a group, version and resource.
    ``watch_lists``: the seconds from requests for a watch with initial events to the end of these.
    ``noted``: requests whose measures wait to be counted, at most MOST_NOTED. ``fold`` counts them.
    ``worker``: the number of this process, if several share a port.
    ``shown``: the metrics and label values that are shown.
    """

    def __init__(self, shown: MetricFilter | None = None) -> None:
        self.shown = shown or MetricFilter()
        self.registry = CollectorRegistry()
        self.worker: int | None = None
        self._requests = Requests()
        self.noted = 0
        self._folds: list[Callable[[], None]] = []
        self._counts: list[Callable[[], Iterator[None]]] = []
        self.register(self._requests)
        self.requests = self._requests.of
        self.validations = self._requests.validations
        self._watchers = Gauge(
            "apiserver_registered_watchers",
            "Number of currently registered watchers.",
            ("group", "version", "kind"),
            registry=self.registry,
        )
        watch_events = WatchEvents()
        self.registry.register(watch_events)
        self.watch_events = watch_events.of
        self.watch_lists = Histogram(
            "apiserver_watch_list_duration_seconds",
            "Response latency distribution in seconds for watch list requests.",
            LIST_LABELS,
            buckets=LIST_BOUNDS,
            registry=self.registry,
        )
        self._long_running = Gauge(
            "apiserver_longrunning_requests",
            "Long-running requests by verb and resource.",
            ("verb", "group", "version", "resource", "subresource", "scope", "component"),
            registry=self.registry,
        )
        self._deprecated = Gauge(
            "apiserver_requested_deprecated_apis",
            "Deprecated APIs that have been requested.",
            ("group", "version", "resource", "subresource", "removed_release"),
            registry=self.registry,
        )
        self.authorizations = AttemptMetrics()
        self.register(self.authorizations)
        self.impersonations = ImpersonationMetrics()
        self.registry.register(self.impersonations)
        self.streams = StreamMetrics()
        self.registry.register(self.streams)
        self._children: dict[tuple[object, ...], object] = {}

    def show_in_flight(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Take the number of current requests by kind from the filter that limits them."""
        self._requests.in_flight = read

    def register(self, collector: NotingCollector) -> None:
        """Add metrics that requests note before they are counted."""
        self.registry.register(collector)
        self._folds.append(collector.fold)

    def fold(self) -> None:
        """Count what requests have noted."""
        self.noted = 0
        for fold in self._folds:
            fold()

    def add_readings(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Add metrics of other parts (log, views, connections), read when /metrics is requested."""
        self.registry.register(_Readings(read))

    def count_ahead(self, count: Callable[[], Iterator[None]]) -> None:
        """Let work in short steps be done before the metrics are collected."""
        self._counts.append(count)

    def watchers(self, group: str, version: str, kind: str) -> Gauge:
        return self._child("w", self._watchers, group, version, kind)

    def long_running(self, labels: RequestLabels) -> Gauge:
        return self._child("l", self._long_running, labels[0], *labels[2:])

    def requested_deprecated(
        self, group: str, version: str, resource: str, subresource: str, removed_release: str
    ) -> None:
        """Note a request for a deprecated API; ``removed_release`` is like "1.25", or empty."""
        self._child("d", self._deprecated, group, version, resource, subresource, removed_release).set(1)

    def _child(self, tag: str, family: _Family, *labels: str) -> _Family:
        key = (tag, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return cast(_Family, child)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        for count in self._counts:
            for _ in count():
                pass
        return _text(self._collected())

    async def exposition_by_thread(self) -> bytes:
        """Return the same. The numbers are read at once; their text takes twice as long, and is made in a thread."""
        pauses = Pauses()
        for count in self._counts:
            await pauses.take(count())
        return await trio.to_thread.run_sync(_text, self._collected())

    def _collected(self) -> list[Metric]:
        registry = self.registry if self.worker is None else _Labelled(self.registry, self.worker)
        return self.shown.apply(sorted(registry.collect(), key=_shown_name))


def _shown_name(metric: Metric) -> str:
    """Return the name in the text, by which Go sorts."""
    is_total = metric.type == "counter" and metric.name not in BARE_COUNTERS
    return f"{metric.name}_total" if is_total else metric.name


class _Collected(CollectorRegistry):
    """Metrics that have been read already."""

    def __init__(self, metrics: list[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


_WHOLE: Final = re.compile(rb" (-?\d+)\.0$", re.MULTILINE)


def text_of(registry: Collector) -> bytes:
    """Return Prometheus' text format. Whole numbers have no ".0", as in kube-apiserver's.

    >>> text_of(CollectorRegistry())
    b''
    """
    return _WHOLE.sub(rb" \1", generate_latest(registry))


def _text(metrics: list[Metric]) -> bytes:
    text = text_of(_Collected(metrics))
    for name in BARE_COUNTERS:
        text = text.replace(f" {name}_total ".encode(), f" {name} ".encode())
    return text
