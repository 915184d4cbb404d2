"""Metrics of the log, the views, the actors and the connections, read at each request for /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from kubechronicle.http.metrics import MetricFilter, Reading
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.databases.units import Unit
from kubechronicle.ops.settings.conversion import label_values
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import LabelValues


def readings(assembly: Assembly) -> Iterable[Reading]:
    yield from _view_readings(assembly)
    yield from _memory_readings(assembly)
    yield from _actor_readings(assembly)
    yield from _connection_readings(assembly)
    yield from _worker_readings(assembly)


def _view_readings(assembly: Assembly) -> Iterable[Reading]:
    units = assembly.storage.every
    # One series as long as there is one database.
    label = "database" if len(units) > 1 else ""
    names = [unit.name or "main" for unit in units] if label else [""]

    def by_database(name: str, text: str, *, counts: bool, read: Callable[[Unit], float]) -> Reading:
        values = {database: float(read(unit)) for database, unit in zip(names, units, strict=True)}
        return Reading(name, text, counts, label, values)

    yield by_database(
        "kubechronicle_applied_revision",
        "The revision up to which the log is applied to the views.",
        counts=False,
        read=lambda unit: unit.views.applied,
    )
    yield by_database(
        "kubechronicle_database_outages",
        "Times that the database was lost.",
        counts=True,
        read=lambda unit: unit.tail.availability.count,
    )
    yield by_database(
        "kubechronicle_log_went_back",
        "Times that the log lost applied changes.",
        counts=True,
        read=lambda unit: len(unit.tail.losses),
    )
    yield by_database(
        "kubechronicle_lost_changes",
        "Applied changes that the log then no longer held.",
        counts=True,
        read=lambda unit: sum(len(loss.changes) for loss in unit.tail.losses),
    )
    yield by_database(
        "kubechronicle_database_writable",
        "Whether the database takes changes.",
        counts=False,
        read=lambda unit: not unit.tail.availability.append_problem(),
    )
    failed: Counter[str] = Counter()
    for unit in units:
        failed.update(unit.tail.availability.failed_appends)
    yield Reading(
        "kubechronicle_append_failures",
        "Appends that failed, by the class of the SQLSTATE (08: no connection).",
        True,
        "class",
        {kind: float(count) for kind, count in failed.items()},
    )


def _memory_readings(assembly: Assembly) -> Iterable[Reading]:
    alone = assembly.sole is not None and assembly.sole.required_revision() is not None
    yield Reading("kubechronicle_sole_appender", "Whether reads spare the log.", False, "", {"": float(alone)})
    statistics = {view.resource: view.statistics() for unit in assembly.storage.every for view in unit.views}
    yield Reading(
        "kubechronicle_view_events",
        "Recent events held in memory by resource.",
        False,
        "resource",
        {name: float(view.events) for name, view in statistics.items()},
    )
    yield Reading(
        "kubechronicle_view_event_bytes",
        "Bytes of the recent events held in memory.",
        False,
        "resource",
        {name: float(view.event_bytes) for name, view in statistics.items()},
    )
    yield Reading(
        "kubechronicle_past_list_bytes",
        "Bytes of lists of the past held in memory.",
        False,
        "",
        {"": float(sum(reads.past.cached_bytes for reads in assembly.store.reads.logs))},
    )


def _actor_readings(assembly: Assembly) -> Iterable[Reading]:
    statistics = assembly.actors.statistics()
    yield Reading(
        "kubechronicle_actor_decisions",
        "Commits decided by resource actors.",
        True,
        "resource",
        {name: float(actor.decided) for name, actor in statistics.items()},
    )
    yield Reading(
        "kubechronicle_actor_conflicts",
        "Commits refused by resource actors.",
        True,
        "resource",
        {name: float(actor.conflicts) for name, actor in statistics.items()},
    )
    failures = assembly.tree.failures
    yield Reading(
        "kubechronicle_restarts",
        "Failures of supervised tasks, after which they were started again.",
        True,
        "task",
        {name: float(count) for name, count in failures.totals.items()},
    )
    yield Reading(
        "kubechronicle_failing_tasks",
        "Tasks that fail now, or have failed a moment ago.",
        False,
        "",
        {"": float(len(failures.failing()))},
    )


def _worker_readings(assembly: Assembly) -> Iterable[Reading]:
    workers, leading = assembly.plan.workers, assembly.plan.leading
    if workers is None or leading is None:
        return
    serving = float(workers.wanted - len(workers.down))
    yield Reading("kubechronicle_workers", "Worker processes of this server.", False, "", {"": float(workers.wanted)})
    yield Reading("kubechronicle_workers_serving", "Worker processes that serve.", False, "", {"": serving})
    yield Reading("kubechronicle_worker_leads", "Whether this worker leads.", False, "", {"": float(leading.is_set())})
    yield Reading(
        "kubechronicle_worker_deaths",
        "Deaths of worker processes by their number, also of those that hung and were killed.",
        True,
        "slot",
        {str(number): float(count) for number, count in workers.deaths.items()},
    )


def _connection_readings(assembly: Assembly) -> Iterable[Reading]:
    if assembly.server is None:
        return
    server = assembly.server.statistics()
    yield Reading(
        "kubechronicle_connections", "Open client connections.", False, "", {"": float(server.open_connections)}
    )
    yield Reading(
        "apiserver_tls_handshake_errors",
        "Connections whose TLS handshake failed.",
        True,
        "",
        {"": float(server.handshakes_failed)},
    )
    yield Reading(
        "kubechronicle_slow_clients_cut_off",
        "Clients cut off because they did not read.",
        True,
        "",
        {"": float(server.cut_off_slow)},
    )


# -- shown metrics -----------------------------------------------------------------------------------------------------
#
# The metrics and label values that /metrics shows, from the settings.


MANIFEST = "--allow-metric-labels-manifest"


def shown_metrics(settings: Settings) -> MetricFilter:
    """Return the filter. Raise OperatorError for an unusable file."""
    given = [settings.allow_metric_labels] if settings.allow_metric_labels is not None else []
    if not given and settings.allow_metric_labels_manifest is not None:
        given = [_manifest(settings.allow_metric_labels_manifest)]
    return MetricFilter(
        disabled=frozenset(settings.disabled_metrics or ()),
        allowed={(metric, label): frozenset(values) for each in given for metric, label, values in each.allowed},
    )


def _manifest(file: Path) -> LabelValues:
    try:
        document = yaml.safe_load(file.read_bytes())
        mapping = document.get("allowListMapping") if isinstance(document, dict) else None
        if not isinstance(mapping, dict):
            raise ValueError("it has no mapping allowListMapping")
        return label_values(mapping)
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise OperatorError(f"{MANIFEST}: {file}: {error}") from None
