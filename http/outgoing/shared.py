"""The parts that all clients of this server share: ways to other servers, metrics, deadlines, tasks beside requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.measures import MOST_NOTED, Histogram, add_to
from kubechronicle.eventlog.restarts import start_apart
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.keep_alive import Deadlines
from kubechronicle.http.outgoing.networks import Networks

# -- metrics -----------------------------------------------------------------------------------------------------------
#
# The metrics of requests to other servers, under the names that client-go gives them.


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


class Shared:
    """``idle``: seconds for which an unused connection is kept. ``networks``: the ways to other servers.

    ``metrics``: counts the requests.
    ``round``: counts the halves of ``idle``, so that a request need not look at the clock.
    ``nursery``: of requests that several tasks wait for; None while the server starts or stops.
    """

    def __init__(self, *, idle: float, networks: Networks) -> None:
        self.idle = idle
        self.round = 0
        self.networks = networks
        self.metrics = OutgoingMetrics()
        self.deadlines = Deadlines()
        self.nursery: trio.Nursery | None = None

    def start(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a task that outlives the request, and knows nothing of it. Raises AskError as ``check_open``."""
        self.check_open()
        assert self.nursery is not None
        start_apart(self.nursery, function)

    def check_open(self) -> None:
        """Raise AskError while the server starts or stops."""
        if self.nursery is None:
            raise AskError("no request is sent while the server starts or stops")
