"""The metrics of requests to other servers, under the names that client-go gives them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

DURATIONS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZES: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
FAILED: Final = "<error>"
"""The code of a request without an answer."""
MOST_SERIES: Final = 1000
"""Combinations of host and method. Further ones are not counted: the URLs of webhooks come from clients."""


class _Histogram:
    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._total)


class _Series:
    """The requests to one host by one method."""

    __slots__ = ("answered", "codes", "durations", "sent")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.durations = _Histogram(DURATIONS)
        self.sent = _Histogram(SIZES)
        self.answered = _Histogram(SIZES)


class OutgoingMetrics(Collector):
    """Counts requests to others."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}

    def ended(self, host: str, method: str, code: str, seconds: float, sent: int, answered: int) -> None:
        """Count a request. ``code``: of the answer, or FAILED. ``sent``, ``answered``: bytes of the bodies."""
        series = self._series.get((host, method))
        if series is None:
            if len(self._series) >= MOST_SERIES:
                return
            series = self._series[host, method] = _Series()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.durations.add(seconds)
        series.sent.add(sent)
        if code != FAILED:
            series.answered.add(answered)

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "rest_client_requests", "Requests to other servers.", labels=("code", "host", "method")
        )
        of_host = ("host", "verb")
        durations = HistogramMetricFamily(
            "rest_client_request_duration_seconds", "Duration of requests to other servers.", labels=of_host
        )
        sent = HistogramMetricFamily(
            "rest_client_request_size_bytes", "Bytes of the bodies of these requests.", labels=of_host
        )
        answered = HistogramMetricFamily(
            "rest_client_response_size_bytes", "Bytes of the bodies of the answers.", labels=of_host
        )
        for (host, method), series in self._series.items():
            for code, count in series.codes.items():
                total.add_metric((code, host, method), count)
            series.durations.add_to(durations, (host, method))
            series.sent.add_to(sent, (host, method))
            series.answered.add_to(answered, (host, method))
        yield from (total, durations, sent, answered)
