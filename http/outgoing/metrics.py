"""The metrics of requests to other servers, under the names that client-go gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.histograms import MOST_NOTED, Histogram, add_to

DURATIONS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZES: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
FAILED: Final = "<error>"
"""The code of a request without an answer."""
MOST_SERIES: Final = 1000
"""Combinations of host and method. Further ones are not counted: the URLs of webhooks come from clients."""


class _Series:
    """The requests to one host by one method. ``noted``: codes that wait to be counted."""

    __slots__ = ("answered", "codes", "durations", "noted", "sent")

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()
        self.noted: list[str] = []
        self.durations = Histogram(DURATIONS)
        self.sent = Histogram(SIZES)
        self.answered = Histogram(SIZES)

    def fold(self) -> None:
        self.codes.update(self.noted)
        self.noted.clear()
        for histogram in (self.durations, self.sent, self.answered):
            histogram.fold()


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
        series.noted.append(code)
        series.durations.note(seconds)
        series.sent.note(sent)
        if code != FAILED:
            series.answered.note(answered)
        if len(series.noted) >= MOST_NOTED:
            series.fold()

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
            series.fold()
            for code, count in series.codes.items():
                total.add_metric((code, host, method), count)
            for family, histogram in ((durations, series.durations), (sent, series.sent), (answered, series.answered)):
                add_to(family, (host, method), histogram)
        yield from (total, durations, sent, answered)
