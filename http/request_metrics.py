"""The metrics of requests by verb and resource, under kube-apiserver's names and with its labels.

They are plain numbers, collected when /metrics is requested: prometheus-client's metrics take a lock each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kubechronicle.api.meta.request_info import VERB_OF_METHOD, RequestInfo

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


class Histogram:
    """Numbers of values by upper bound, the last one for those above all bounds."""

    __slots__ = ("_bounds", "_counts", "_moved", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._moved: Histogram | None = None

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def move(self, value: float, lower: float) -> None:
        """Count a value lower in ``without_waits``."""
        if self._moved is None:
            self._moved = Histogram(self._bounds)
        counts = self._moved._counts
        counts[bisect_left(self._bounds, value)] -= 1
        counts[bisect_left(self._bounds, lower)] += 1
        self._moved._total += lower - value

    def without_waits(self) -> Histogram:
        """Return the histogram with the moved values."""
        result = Histogram(self._bounds)
        result.merge(self)
        if self._moved is not None:
            result.merge(self._moved)
        return result

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds."""
        self._counts = [one + two for one, two in zip(self._counts, other._counts, strict=True)]
        self._total += other._total

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        if not any(self._counts):
            return  # no request has ended, or they are long-running
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(map(float, self._counts)), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._total)


RequestLabels = tuple[str, str, str, str, str, str, str, str]
_LABELS: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_WITHOUT_DRY_RUN: Final = ("verb", "group", "version", "resource", "subresource", "scope", "component")
NOT_SERVED: Final = ("other", "", "", "", "", "", "", "")
"""The labels of requests for unknown resources: clients must not create series by such requests."""


def request_labels(info: RequestInfo, method: str, *, dry_run: bool) -> RequestLabels:
    """Return the labels of a request for a resource that is served, or for another path."""
    if info.is_resource:
        verb = "CONNECT" if info.subresource in CONNECTED else KNOWN_VERBS.get(info.verb, "other")
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
        names = (info.group, info.version, info.resource, info.subresource)
        return (verb, "All" if dry_run else "", *names, scope, "apiserver")
    verb = method if method in VERB_OF_METHOD else "other"
    component, page = PATHS.get(info.path) or PATHS.get(info.path[: info.path.find("/", 1)], ("", ""))
    return (verb, "", "", "", "", page, "", component)


def _undried(labels: RequestLabels) -> tuple[str, ...]:
    """Return the labels of metrics that do not tell dry runs apart."""
    return (labels[0], *labels[2:])


class Series:
    """The metrics of requests with the same labels, by the code of the answer."""

    __slots__ = ("_excluded", "bodies", "codes", "durations", "sizes", "terminations")

    def __init__(self, sizes: Histogram) -> None:
        self.codes: dict[int, int] = {}
        self.durations = Histogram(DURATION_BUCKETS)
        self.sizes = sizes
        self.bodies: Histogram | None = None
        self.terminations: dict[int, int] = {}
        self._excluded: list[tuple[float, float]] = []

    def observe(self, code: int, seconds: float, size: int, waited: float) -> None:
        """Count an answered request. ``waited``: the seconds of it in queues and for webhooks."""
        self.ended(code)
        self.durations.add(seconds)
        self.sizes.add(size)
        if waited:
            self._excluded.append((seconds, seconds - waited))
            if len(self._excluded) >= 1000:
                self.indicator()

    def ended(self, code: int) -> None:
        """Count the end of a request with a streamed answer."""
        self.codes[code] = self.codes.get(code, 0) + 1

    def terminated(self, code: int) -> None:
        """Count a request that the server ended in self-defence."""
        self.terminations[code] = self.terminations.get(code, 0) + 1

    def received(self, size: int) -> None:
        """Count the body of a request."""
        if self.bodies is None:
            self.bodies = Histogram(BODY_BUCKETS)
        self.bodies.add(size)

    def indicator(self) -> Histogram:
        """Return the durations without the waits. They differ in few requests, so only these are noted."""
        moved, self._excluded = self._excluded, []
        for seconds, without in moved:
            self.durations.move(seconds, without)
        return self.durations.without_waits()


class Requests(Collector):
    """The series of all requests.

    ``in_flight``: the number of current requests by kind.
    ``validations``: the durations of writes by their parameter fieldValidation.
    """

    def __init__(self) -> None:
        self.series: dict[RequestLabels, Series] = {}
        self._sizes: dict[tuple[str, ...], Histogram] = {}
        self.in_flight = {"readOnly": 0, "mutating": 0}
        self.validations = {value: Histogram(DURATION_BUCKETS) for value in FIELD_VALIDATIONS}

    def of(self, labels: RequestLabels) -> Series:
        series = self.series.get(labels)
        if series is None:
            sizes = self._sizes.setdefault(_undried(labels), Histogram(SIZE_BUCKETS))
            series = self.series[labels] = Series(sizes)
        return series

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
            series.durations.add_to(durations, labels)
            indicated.setdefault(_undried(labels), Histogram(DURATION_BUCKETS)).merge(series.indicator())
            if series.bodies is not None:
                key = (labels[2], labels[4], _VERBS[labels[0]])
                received.setdefault(key, Histogram(BODY_BUCKETS)).merge(series.bodies)
        for shown, histogram in indicated.items():
            histogram.add_to(indicators, shown)
        for shown, histogram in received.items():
            histogram.add_to(bodies, shown)
        sizes = HistogramMetricFamily("apiserver_response_sizes", "Response size in bytes.", labels=_WITHOUT_DRY_RUN)
        for size_labels, histogram in self._sizes.items():
            histogram.add_to(sizes, size_labels)
        validations = HistogramMetricFamily(
            "field_validation_request_duration_seconds",
            "Response latency of writes in seconds by the parameter fieldValidation.",
            labels=("field_validation",),
        )
        for value, histogram in self.validations.items():
            histogram.add_to(validations, (value,))
        in_flight = GaugeMetricFamily(
            "apiserver_current_inflight_requests", "Requests being handled.", labels=("request_kind",)
        )
        for kind, count in self.in_flight.items():
            in_flight.add_metric((kind,), count)
        return [total, durations, indicators, terminations, bodies, sizes, validations, in_flight]


_VERBS: Final = {shown: verb for verb, shown in KNOWN_VERBS.items()} | {"CONNECT": "create", "other": "other"}
