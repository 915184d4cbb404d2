"""The metrics of audit, by kube-apiserver's names. Plain numbers, because every request counts."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.audit.policy import LEVELS


class AuditMetrics(Collector):
    """``errors``: events that a backend has not recorded as it should, by the plugin's name."""

    def __init__(self) -> None:
        self.events = 0
        self.levels = dict.fromkeys(LEVELS, 0)
        self.rejected = 0
        self.errors: dict[str, int] = {}

    def failed(self, plugin: str, events: int) -> None:
        """Count events that a plugin has not recorded. May be called from a thread: the caller is the only one."""
        self.errors[plugin] = self.errors.get(plugin, 0) + events

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "apiserver_audit_event", "Counter of audit events generated and sent to the audit backend.", self.events
        )
        levels = CounterMetricFamily(
            "apiserver_audit_level",
            "Counter of policy levels for audit events (1 per request).",
            labels=["level"],
        )
        for level, count in self.levels.items():
            levels.add_metric([level], count)
        yield levels
        errors = CounterMetricFamily(
            "apiserver_audit_error",
            "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the "
            "error.",
            labels=["plugin"],
        )
        for plugin, count in list(self.errors.items()):
            errors.add_metric([plugin], count)
        yield errors
        yield CounterMetricFamily(
            "apiserver_audit_requests_rejected",
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
            self.rejected,
        )
