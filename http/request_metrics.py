"""The metrics of requests by verb and resource, under kube-apiserver's names and with its labels.

They are plain numbers, collected when /metrics is requested: prometheus-client's metrics take a lock each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.meta.request_info import VERB_OF_METHOD, RequestInfo
from kubechronicle.eventlog.measures import Histogram, add_to
from kubechronicle.eventlog.measures import buckets as cumulative

# -- watch metrics -----------------------------------------------------------------------------------------------------
#
# Metrics of the events sent to watchers: their number and their sizes, under kube-apiserver's names.

BOUNDS: Final = tuple(1024 << power for power in range(8))
"""Upper bounds of sizes in bytes."""
LABELS: Final = ("group", "version", "resource")
LIST_LABELS: Final = (*LABELS, "scope")
LIST_BOUNDS: Final = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
"""Upper bounds of the seconds that initial events take, as in kube-apiserver v1.36."""


def bucket_of(frame: bytes) -> int:
    """Return the index of the bucket in which a frame is counted."""
    return bisect_left(BOUNDS, len(frame))


class EventCount:
    """The events of one resource. Many watchers get the same frames, so the caller says in which buckets these are."""

    __slots__ = ("_counts", "_total", "value")

    def __init__(self) -> None:
        self.value = 0
        self._total = 0
        self._counts = [0] * (len(BOUNDS) + 1)

    def add(self, size: int, buckets: Sequence[int]) -> None:
        """Count frames of ``size`` bytes in all."""
        self.value += len(buckets)
        self._total += size
        for bucket in buckets:
            self._counts[bucket] += 1

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        family.add_metric(labels, cumulative(BOUNDS, self._counts), self._total)


class WatchEvents(Collector):
    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], EventCount] = {}

    def of(self, group: str, version: str, resource: str) -> EventCount:
        return self._known.setdefault((group, version, resource), EventCount())

    def collect(self) -> Iterable[Metric]:
        events = CounterMetricFamily("apiserver_watch_events", "Events sent in watch clients.", labels=LABELS)
        sizes = HistogramMetricFamily(
            "apiserver_watch_events_sizes", "Watch event size distribution in bytes", labels=LABELS
        )
        for labels, count in self._known.items():
            events.add_metric(labels, count.value)
            if count.value:
                count.add_to(sizes, labels)
        return events, sizes


# -- request metrics ---------------------------------------------------------------------------------------------------

# kube-apiserver's buckets, with three more below: most requests end within the first of those.
_SHORTEST: Final = (0.001, 0.0025)
_COMMON: Final = (
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
DURATION_BUCKETS: Final = (*_SHORTEST, 0.005, 0.01, 0.025, *_COMMON)
SIZE_BUCKETS: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
BODY_BUCKETS: Final = tuple(50_000 + 100_000 * step for step in range(31))
KNOWN_VERBS: Final = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
FIELD_VALIDATIONS: Final = ("", "Ignore", "Warn", "Strict")
CONNECTED: Final = frozenset({"attach", "exec", "portforward", "proxy"})
"""Subresources whose requests are counted with the verb CONNECT."""
PATHS: Final = {
    "/healthz": ("", "/healthz"), "/livez": ("", "/livez"), "/readyz": ("", "/readyz"), "/metrics": ("", "/metrics"),
    "/version": ("", "/version"), "/openapi/v2": ("", "openapi/v2"), "/openapi/v3": ("", "openapi/v3"),
    "/api": ("apiserver", "api"), "/apis": ("apiserver", "apis"),
}  # fmt: skip
"""Component and subresource of other requests; paths that are not listed have neither."""


RequestLabels = tuple[str, str, str, str, str, str, str, str]
_LABELS: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_WITHOUT_DRY_RUN: Final = ("verb", "group", "version", "resource", "subresource", "scope", "component")
NOT_SERVED: Final = ("other", "", "", "", "", "", "", "")
"""The labels of requests for unknown resources: clients must not create series by such requests."""


def request_labels(info: RequestInfo, method: str, *, dry_run: bool) -> RequestLabels:
    """Return the labels of a request for a resource that is served, or for another path."""
    if info.is_resource:
        verb = "CONNECT" if info.subresource in CONNECTED else KNOWN_VERBS.get(info.verb, "other")
        names = (info.group, info.version, info.resource, info.subresource)
        return (verb, "All" if dry_run else "", *names, info.scope, "apiserver")
    verb = method if method in VERB_OF_METHOD else "other"
    component, page = PATHS.get(info.path) or PATHS.get(info.path[: info.path.find("/", 1)], ("", ""))
    return (verb, "", "", "", "", page, "", component)


def _undried(labels: RequestLabels) -> tuple[str, ...]:
    """Return the labels of metrics that do not tell dry runs apart."""
    return (labels[0], *labels[2:])


class Series:
    """The metrics of requests with the same labels. What requests note is counted by ``fold``.

    ``ended``: notes the code of a request that ended. It is all that is counted of one with a streamed answer.
    """

    __slots__ = ("_after", "_before", "_codes", "_ended", "bodies", "durations", "ended", "sizes", "terminations")

    def __init__(self, sizes: Histogram) -> None:
        self._codes: Counter[int] = Counter()
        self._ended: list[int] = []
        self.ended = self._ended.append
        self.durations = Histogram(DURATION_BUCKETS)
        self.sizes = sizes
        self.bodies = Histogram(BODY_BUCKETS)
        self.terminations: dict[int, int] = {}
        # Durations of requests that waited, and the same without the waits.
        self._before, self._after = Histogram(DURATION_BUCKETS), Histogram(DURATION_BUCKETS)

    def observe(self, code: int, seconds: float, size: int, waited: float) -> None:
        """Note an answered request. ``waited``: the seconds of it in queues and for webhooks."""
        self.ended(code)
        self.durations.note(seconds)
        self.sizes.note(size)
        if waited:
            self._before.note(seconds)
            self._after.note(seconds - waited)

    def terminated(self, code: int) -> None:
        """Count a request that the server ended in self-defence."""
        self.terminations[code] = self.terminations.get(code, 0) + 1

    def fold(self) -> None:
        self._codes.update(self._ended)
        self._ended.clear()
        for histogram in (self.durations, self.sizes, self.bodies, self._before, self._after):
            histogram.fold()

    @property
    def codes(self) -> Mapping[int, int]:
        """The numbers of requests by the code of the answer."""
        self.fold()
        return self._codes

    def indicator(self) -> Histogram:
        """Return the durations without the waits."""
        result = Histogram(DURATION_BUCKETS)
        result.merge(self.durations)
        result.replace(self._before, self._after)
        return result


def _add_to(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    if any(histogram.counts):  # otherwise no request has ended, or they are long-running
        add_to(family, labels, histogram)


class Requests(Collector):
    """The series of all requests.

    ``in_flight``: returns the number of current requests by kind; the filter that limits them sets it.
    ``validations``: the durations of writes by their parameter fieldValidation.
    """

    def __init__(self) -> None:
        self.series: dict[RequestLabels, Series] = {}
        self._sizes: dict[tuple[str, ...], Histogram] = {}
        self.in_flight: Callable[[], Mapping[str, int]] = dict
        self.validations = {value: Histogram(DURATION_BUCKETS) for value in FIELD_VALIDATIONS}

    def of(self, labels: RequestLabels) -> Series:
        series = self.series.get(labels)
        if series is None:
            sizes = self._sizes.setdefault(_undried(labels), Histogram(SIZE_BUCKETS))
            series = self.series[labels] = Series(sizes)
        return series

    def fold(self) -> None:
        """Count what requests have noted."""
        for series in self.series.values():
            series.fold()
        for histogram in self.validations.values():
            histogram.fold()

    def collect(self) -> Iterable[Metric]:
        total = CounterMetricFamily(
            "apiserver_request", "Requests by verb, resource and HTTP response code.", labels=(*_LABELS, "code")
        )
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Response latency in seconds.", labels=_LABELS
        )
        indicators = HistogramMetricFamily(
            "apiserver_request_sli_duration_seconds",
            "Response latency in seconds, without the wait in queues of priority and fairness and for webhooks.",
            labels=_WITHOUT_DRY_RUN,
        )
        terminations = CounterMetricFamily(
            "apiserver_request_terminations",
            "Requests ended by the server in self-defence.",
            labels=(*_WITHOUT_DRY_RUN, "code"),
        )
        bodies = HistogramMetricFamily(
            "apiserver_request_body_size_bytes", "Size of request bodies.", labels=("group", "resource", "verb")
        )
        indicated: dict[tuple[str, ...], Histogram] = {}
        received: dict[tuple[str, ...], Histogram] = {}
        for labels, series in self.series.items():
            for code, number in series.codes.items():
                total.add_metric((*labels, str(code)), number)
            for code, number in series.terminations.items():
                terminations.add_metric((*_undried(labels), str(code)), number)
            _add_to(durations, labels, series.durations)
            indicated.setdefault(_undried(labels), Histogram(DURATION_BUCKETS)).merge(series.indicator())
            if any(series.bodies.counts):
                key = (labels[2], labels[4], _VERBS[labels[0]])
                received.setdefault(key, Histogram(BODY_BUCKETS)).merge(series.bodies)
        for shown, histogram in indicated.items():
            _add_to(indicators, shown, histogram)
        for shown, histogram in received.items():
            _add_to(bodies, shown, histogram)
        sizes = HistogramMetricFamily("apiserver_response_sizes", "Response size in bytes.", labels=_WITHOUT_DRY_RUN)
        for size_labels, histogram in self._sizes.items():
            _add_to(sizes, size_labels, histogram)
        validations = HistogramMetricFamily(
            "field_validation_request_duration_seconds",
            "Response latency of writes in seconds by the parameter fieldValidation.",
            labels=("field_validation",),
        )
        for value, histogram in self.validations.items():
            _add_to(validations, (value,), histogram)
        in_flight = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests being handled.", labels=("request_kind",)
        )
        for kind, count in self.in_flight().items():
            in_flight.add_metric((kind,), count)
        return [total, durations, indicators, terminations, bodies, sizes, validations, in_flight]


_VERBS: Final = {shown: verb for verb, shown in KNOWN_VERBS.items()} | {"CONNECT": "create", "other": "other"}
