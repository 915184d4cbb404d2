"""/metrics/slis: the results of health checks as metrics (KEP-3466)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.http.health import Health
from kubechronicle.http.messages import Response
from kubechronicle.http.metrics import CONTENT_TYPE, text_of

_LABELS: Final = ("name", "type")


class Slis(Collector):
    """Reads the results that the health checks have noted. A check that was not asked for since the last request is run
    now, so that the answer is of this moment."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def answer(self) -> Response:
        self._health.run_all()
        return Response(200, [("content-type", CONTENT_TYPE)], text_of(self._registry))

    def collect(self) -> Iterator[Metric]:
        last = GaugeMetricFamily("kubernetes_healthcheck", "The last result of a health check.", labels=_LABELS)
        total = CounterMetricFamily("kubernetes_healthchecks", "Results of health checks.", labels=(*_LABELS, "status"))
        for (name, kind), results in sorted(self._health.results.items()):
            last.add_metric((name, kind), 1.0 if results.healthy else 0.0)
            for status, count in (("success", results.successes), ("error", results.failures)):
                if count:
                    total.add_metric((name, kind, status), count)
        yield from (last, total)
