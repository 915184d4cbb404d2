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


class _Series:
    """The requests to one host by one method. Histograms: the numbers of the buckets, then the sum."""

    __slots__ = ("answered", "codes", "durations", "sent")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.durations: list[float] = [0] * (len(DURATIONS) + 1) + [0.0]
        self.sent: list[float] = [0] * (len(SIZES) + 1) + [0.0]
        self.answered = list(self.sent)


def _add_to(family: HistogramMetricFamily, labels: Sequence[str], bounds: Sequence[float], series: list[float]) -> None:
    *numbers, total = series
    names = [*map(floatToGoString, bounds), "+Inf"]
    family.add_metric(labels, list(zip(names, accumulate(numbers), strict=True)), total)


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
        series.durations[bisect_left(DURATIONS, seconds)] += 1
        series.durations[-1] += seconds
        series.sent[bisect_left(SIZES, sent)] += 1
        series.sent[-1] += sent
        if code != FAILED:
            series.answered[bisect_left(SIZES, answered)] += 1
            series.answered[-1] += answered

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
            _add_to(durations, (host, method), DURATIONS, series.durations)
            _add_to(sent, (host, method), SIZES, series.sent)
            _add_to(answered, (host, method), SIZES, series.answered)
        yield from (total, durations, sent, answered)
