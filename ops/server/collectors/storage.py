"""Metrics of storage under kube-apiserver's names: the log stands for etcd, and the views for its watch caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.reading.reads import Listed
from kubechronicle.api.history.revisions import group_and_plural
from kubechronicle.eventlog.measures import DURATIONS, Histogram, MeasuredLog, add_to
from kubechronicle.eventlog.postgres.clocks import Clocks
from kubechronicle.eventlog.postgres.servers import DatabaseSize
from kubechronicle.eventlog.postgres.standby_reads import Standby
from kubechronicle.eventlog.views.view import RECENT_EVENTS
from kubechronicle.eventlog.views.views import View, Views

# -- clocks ------------------------------------------------------------------------------------------------------------
#
# Metrics of the clocks of the database and of this server, read at each request for /metrics.


class ClockCollector(Collector):
    """``clocks``: by the name of the database; of a single one without a label."""

    def __init__(self, clocks: Mapping[str, Clocks]) -> None:
        self._clocks = clocks

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        yield self._family(
            "kubechronicle_database_clock_skew_seconds",
            "Seconds by which the database's clock is ahead of this server's.",
            lambda clocks: clocks.skew,
        )
        yield self._family(
            "kubechronicle_commit_time_ahead_seconds",
            "Seconds by which the newest commit time is in the future.",
            lambda clocks: clocks.ahead,
        )

    def _family(self, name: str, text: str, read: Callable[[Clocks], float]) -> Metric:
        several = len(self._clocks) > 1
        family = GaugeMetricFamily(name, text, labels=["database"] if several else [])
        for database, clocks in self._clocks.items():
            family.add_metric([database] if several else [], read(clocks))
        return family


# -- storage -----------------------------------------------------------------------------------------------------------

_RESOURCE: Final = ("group", "resource")
_ROUND_TRIP: Final = ("operation", "group", "resource")
_SAMPLE: Final = 16


class SizeCollector(Collector):
    """The sizes of the databases, once they are known. ``sizes``: by name."""

    def __init__(self, sizes: Mapping[str, DatabaseSize]) -> None:
        self._sizes = sizes

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        known = {name: size.bytes for name, size in self._sizes.items() if size.bytes is not None}
        if known:
            family = GaugeMetricFamily(
                "apiserver_storage_size_bytes",
                "Size of the storage database file physically allocated in bytes.",
                labels=["storage_cluster_id"],
            )
            for name, size in known.items():
                family.add_metric([name], size)
            yield family


class StandbyCollector(Collector):
    """The reads of the past that the standby of --history-database-url has answered, or the primary in its place."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        reads = CounterMetricFamily(
            "kubechronicle_history_reads",
            "Searches and lists of the past, by the database that answered: standby, or primary in its place.",
            labels=["database"],
        )
        reads.add_metric(["standby"], self._standby.served)
        reads.add_metric(["primary"], self._standby.passed_over)
        yield reads


class StorageCollector(Collector):
    """Reads the numbers of the logs and the views. Round trips of all logs are added up."""

    def __init__(
        self, logs: Sequence[MeasuredLog], views: Sequence[Views], listed: Sequence[Mapping[str, Listed]]
    ) -> None:
        self._logs = logs
        self._listed = listed
        self._views = views

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._round_trips()
        # A log of one database may have an empty view of a resource that is in another one.
        held = {view.resource: view for views in self._views for view in views if view.resource != NODE_PORTS}
        views = list(held.values())
        yield from self._objects(views)
        yield from self._caches(views)
        yield from self._lists()

    def _round_trips(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "etcd_request_duration_seconds", "Duration of round trips to the log in seconds.", labels=_ROUND_TRIP
        )
        total = CounterMetricFamily("etcd_requests", "Round trips to the log.", labels=_ROUND_TRIP)
        failures = CounterMetricFamily("etcd_request_errors", "Failed round trips to the log.", labels=_ROUND_TRIP)
        for operation, resource in dict.fromkeys(key for log in self._logs for key in list(log.round_trips)):
            seconds, failed = Histogram(DURATIONS), 0
            for log in self._logs:
                if (found := log.round_trips.get((operation, resource))) is not None:
                    seconds.merge(found.seconds)
                    failed += found.failures
            labels = (operation, *group_and_plural(resource))
            add_to(durations, labels, seconds)
            total.add_metric(labels, seconds.number)
            if failed:
                failures.add_metric(labels, failed)
        yield from (durations, total, failures)

    def _objects(self, views: list[View]) -> Iterator[Metric]:
        former = GaugeMetricFamily(
            "apiserver_storage_objects", "Stored objects (the former name).", labels=["resource"]
        )
        objects = GaugeMetricFamily("apiserver_resource_objects", "Stored objects by resource.", labels=_RESOURCE)
        sizes = GaugeMetricFamily(
            "apiserver_resource_size_estimate_bytes",
            "Estimated bytes of stored objects: their number, times the average of a few.",
            labels=_RESOURCE,
        )
        for view in views:
            count, some = view.count(), view.page("", None, _SAMPLE)
            former.add_metric([view.resource], count)
            objects.add_metric(group_and_plural(view.resource), count)
            average = sum(len(entry.json) for entry in some) / len(some) if some else 0.0
            sizes.add_metric(group_and_plural(view.resource), round(count * average))
        yield from (former, objects, sizes)

    def _lists(self) -> Iterator[Metric]:
        lists = CounterMetricFamily("apiserver_cache_list", "Lists from the views.", labels=(*_RESOURCE, "index"))
        returned = CounterMetricFamily(
            "apiserver_cache_list_returned_objects", "Objects in lists from the views.", labels=_RESOURCE
        )
        for resource, found in [item for listed in self._listed for item in listed.items()]:
            lists.add_metric((*group_and_plural(resource), ""), found.lists)
            returned.add_metric(group_and_plural(resource), found.returned)
        yield from (lists, returned)

    def _caches(self, views: list[View]) -> Iterator[Metric]:
        events = {
            name: CounterMetricFamily(name, text, labels=_RESOURCE)
            for name, text in (
                ("apiserver_storage_events_received", "Events received from the log."),
                ("apiserver_watch_cache_events_received", "Events applied to the views."),
                ("apiserver_watch_cache_events_dispatched", "Events passed to the dispatch of watchers."),
            )
        }
        revisions = GaugeMetricFamily(
            "apiserver_watch_cache_resource_version", "The revision up to which the view is applied.", labels=_RESOURCE
        )
        capacity = GaugeMetricFamily("watch_cache_capacity", "Most recent events held in memory.", labels=_RESOURCE)
        for view in views:
            labels = group_and_plural(view.resource)
            for family in events.values():
                family.add_metric(labels, view.window.added)
            revisions.add_metric(labels, view.applied)
            capacity.add_metric(labels, RECENT_EVENTS)
        yield from (*events.values(), revisions, capacity)
