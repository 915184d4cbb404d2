"""The interface of audit backends, and their settings.

blocking           a request is answered when its events are written, or could not be
blocking-strict    as blocking; a request whose RequestReceived event cannot be written is rejected
batch              events wait in a bounded buffer; what does not fit is dropped and counted
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import trio
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.audit.events import AuditEvent, Offered, legacy_line
from kubechronicle.api.audit.policy import LEVELS

log = logging.getLogger(__name__)

BLOCKING, BLOCKING_STRICT, BATCH = "blocking", "blocking-strict", "batch"
MODES: Final = (BATCH, BLOCKING, BLOCKING_STRICT)
JSON_FORMAT, LEGACY_FORMAT = "json", "legacy"
FORMATS: Final = (LEGACY_FORMAT, JSON_FORMAT)
MOST_BYTES: Final = 256 << 20
"""Estimated bytes of the events that wait in one backend. A buffer is bounded by its number of events, too."""
MOST_LOGGED: Final = 100
"""Lost events that are logged one by one when a backend fails; the others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The buffer of the mode batch. Times are in seconds; ``qps`` are batches a second."""

    buffer_size: int = 10_000
    max_size: int = 400
    max_wait: float = 30.0
    throttle: bool = True
    qps: float = 10.0
    burst: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateSettings:
    """Limits in bytes, if truncation is on."""

    enabled: bool = False
    max_batch_size: int = 10 * 1024 * 1024
    max_event_size: int = 100 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log file. ``path``: ``-`` is standard output. ``max_age``: days; ``max_size``: MiB; 0 means no limit."""

    path: str
    format: str = JSON_FORMAT
    mode: str = BLOCKING
    max_age: int = 366
    max_backups: int = 100
    max_size: int = 100
    compress: bool = False
    batch: BatchSettings = BatchSettings(max_size=1, max_wait=0.0, throttle=False)
    truncate: TruncateSettings = TruncateSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The webhook. ``kubeconfig``: its address and credentials. ``initial_backoff``: seconds."""

    kubeconfig: Path
    mode: str = BATCH
    initial_backoff: float = 10.0
    batch: BatchSettings = BatchSettings()
    truncate: TruncateSettings = TruncateSettings()


class AuditBackend(Protocol):
    """A destination of events."""

    @property
    def mode(self) -> str: ...

    def offer(self, event: Offered) -> Delivery | None:
        """Take an event without waiting. Returns its delivery, if the request has to wait for that."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write events until cancelled, and what is left then, within some seconds."""


class Delivery:
    """The outcome of one event in a blocking backend. One task may wait for it."""

    __slots__ = ("_task", "event", "ok")

    def __init__(self, event: Offered) -> None:
        self.event = event
        self.ok: bool | None = None
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> bool:
        """Return True once the event is written, False if it could not be."""
        if self.ok is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        return bool(self.ok)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def finish(self, *, ok: bool) -> None:
        """Set the outcome, on the event loop."""
        self.ok = ok
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


def log_lost(plugin: str, why: str, events: Sequence[Offered]) -> None:
    """Log events that a backend has not recorded, so that the server's log has their main facts."""
    lines = [legacy_line(AuditEvent.of(event).facts()) for event in events[:MOST_LOGGED]]
    log.error(
        "Error in audit plugin '%s' affecting %d audit events: %s\nImpacted events:\n%s",
        plugin, len(events), why, "\n".join(lines),
    )  # fmt: skip


# -- metrics -----------------------------------------------------------------------------------------------------------
#
# The metrics of audit, by kube-apiserver's names. Plain numbers, because every request counts.


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
