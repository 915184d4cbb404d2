"""Metrics of the log, the views, the actors and the connections, read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Iterable

from kubechronicle.http.metrics import Reading
from kubechronicle.ops.server.assembly import Assembly


def readings(assembly: Assembly) -> Iterable[Reading]:
    yield from _view_readings(assembly)
    yield from _actor_readings(assembly)
    yield from _connection_readings(assembly)


def _view_readings(assembly: Assembly) -> Iterable[Reading]:
    views = list(assembly.views)
    yield Reading(
        "kubechronicle_applied_revision",
        "The revision up to which the log is applied to the views.",
        False,
        "",
        {"": float(assembly.views.applied)},
    )
    tail = assembly.tail
    yield Reading(
        "kubechronicle_database_outages", "Times that the database was lost.", True, "", {"": float(tail.outages.count)}
    )
    yield Reading(
        "kubechronicle_log_went_back", "Times that the log lost applied changes.", True, "", {"": len(tail.losses)}
    )
    yield Reading(
        "kubechronicle_lost_changes",
        "Applied changes that the log then no longer held.",
        True,
        "",
        {"": float(sum(len(loss.changes) for loss in tail.losses))},
    )
    alone = assembly.sole is not None and assembly.sole.required_revision() is not None
    yield Reading("kubechronicle_sole_appender", "Whether reads spare the log.", False, "", {"": float(alone)})
    statistics = {view.resource: view.statistics() for view in views}
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
        {"": float(assembly.store.reads.past.cached_bytes)},
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
    yield Reading(
        "kubechronicle_restarts",
        "Restarts of supervised children.",
        True,
        "",
        {"": float(assembly.tree.restarts_total + assembly.actors.crashes_total)},
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
