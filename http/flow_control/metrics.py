"""The metrics of priority and fairness, under kube-apiserver's names, read when /metrics is requested."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.flow_control.pace import SERVICE_TIME
from kubechronicle.api.flow_control.queues import Level
from kubechronicle.eventlog.measures import Histogram, buckets
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.measures import Shares, Use

_NAME: Final = "apiserver_flowcontrol_"
_LEVEL: Final = ("priority_level",)
_FLOW: Final = ("priority_level", "flow_schema")

_SEATS: Final = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_REQUESTS: Final = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
_DEMAND: Final = (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6)
_READ_WRITE: Final = (0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_LENGTHS: Final = (0, 10, 20, 30, 40, 50, 100)
_WATCHERS: Final = (0, 1, 10, 100, 1000, 10000)
_ESTIMATES: Final = (1, 2, 4, 8, 16, 32, 64, 100)

_LEVEL_GAUGES: Final[Mapping[str, tuple[str, Callable[[FlowControl, Level], float]]]] = {
    "nominal_limit_seats": ("Seats of each priority level by configuration.", lambda c, x: x.limits.nominal),
    "lower_limit_seats": ("Least seats of each priority level.", lambda c, x: x.limits.lower),
    "upper_limit_seats": ("Most seats of each priority level.", lambda c, x: x.limits.upper),
    "current_limit_seats": ("Present seats of each priority level.", lambda c, x: x.current),
    "current_r": ("Virtual time of the level.", lambda c, x: x.virtual_time),
    "dispatch_r": ("Virtual time of the last dispatch.", lambda c, x: x.dispatch_r),
    "latest_s": ("Virtual start of the request dispatched last.", lambda c, x: x.latest_s),
    "demand_seats_average": ("Average demand in the last period.", lambda c, x: c.demands[x.spec.name].average),
    "demand_seats_stdev": (
        "Deviation of the demand in the last period.",
        lambda c, x: c.demands[x.spec.name].deviation,
    ),
    "demand_seats_high_watermark": ("Highest demand in the last period.", lambda c, x: c.demands[x.spec.name].high),
    "demand_seats_smoothed": ("Smoothed demand.", lambda c, x: c.demands[x.spec.name].smoothed),
    "target_seats": ("Targets of the allocation of seats.", lambda c, x: c.target(x)),
}

_FLOW_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "current_inqueue_requests": ("Requests waiting in queues.", "waiting"),
    "current_inqueue_seats": ("Seats of the requests waiting in queues.", "waiting_seats"),
    "current_executing_requests": ("Requests executing; watches until their initial events are sent.", "executing"),
    "current_executing_seats": ("Seats of the requests executing.", "executing_seats"),
}


class FlowControlMetrics(Collector):
    """The collector."""

    def __init__(self, control: FlowControl) -> None:
        self._control = control

    def describe(self) -> Iterable[Metric]:
        return ()  # registration must not collect: there is no clock before the server runs

    def fold(self) -> None:
        """Count what requests have noted."""
        for measures in self._control.measures.values():
            measures.fold()

    def collect(self) -> Iterator[Metric]:
        control, now = self._control, trio.current_time()
        for name, level in control.levels.items():
            level.advance(now)
            control.take_use(name, now)
        yield from self._of_levels()
        yield from self._of_queues()
        yield from self._of_flows()
        yield from self._of_measures()
        yield from self._over_time()

    def _of_levels(self) -> Iterator[Metric]:
        for name, (text, value) in _LEVEL_GAUGES.items():
            gauge = GaugeMetricFamily(_NAME + name, text, labels=_LEVEL)
            for level in self._control.levels.values():
                gauge.add_metric((level.spec.name,), value(self._control, level))
            yield gauge
        yield GaugeMetricFamily(
            _NAME + "seat_fair_frac", "Part of its target that each level gets.", value=self._control.fair_fraction
        )

    def _of_queues(self) -> Iterator[Metric]:
        """Yield the bounds of the virtual starts of the requests that are next in their queues."""
        starts = GaugeMetricFamily(
            _NAME + "next_s_bounds", "Bounds of the virtual starts, over queues.", labels=(*_LEVEL, "bound")
        )
        discounted = GaugeMetricFamily(
            _NAME + "next_discounted_s_bounds", "The same, without the work in progress.", labels=(*_LEVEL, "bound")
        )
        for name, level in self._control.levels.items():
            queues = [queue for queue in level.queues if queue.waiting]
            for family, values in (
                (starts, [queue.next_r for queue in queues]),
                (discounted, [queue.next_r - queue.seats * SERVICE_TIME for queue in queues]),
            ):
                for bound, pick in (("min", min), ("max", max)):
                    if values:
                        family.add_metric((name, bound), pick(values))
        yield from (starts, discounted)

    def _of_flows(self) -> Iterator[Metric]:
        flows = [
            ((name, schema), counts)
            for name, level in self._control.levels.items()
            for schema, counts in level.flows.items()
        ]
        for name, (text, field) in _FLOW_GAUGES.items():
            gauge = GaugeMetricFamily(_NAME + name, text, labels=_FLOW)
            for labels, counts in flows:
                gauge.add_metric(labels, getattr(counts, field))
            yield gauge
        waiting = GaugeMetricFamily(
            "apiserver_current_inqueue_requests", "Requests waiting in queues by kind.", labels=["request_kind"]
        )
        for kind, number in self._control.kinds.waiting.items():
            waiting.add_metric([kind], number.count)
        yield waiting
        dispatched = CounterMetricFamily(_NAME + "dispatched_requests", "Requests executed.", labels=_FLOW)
        lengths = HistogramMetricFamily(
            _NAME + "request_queue_length_after_enqueue", "Length of the queue that a request joined.", labels=_FLOW
        )
        for labels, counts in flows:
            dispatched.add_metric(labels, counts.dispatched)
            if self._control.levels[labels[0]].queues:
                at_once = max(0, counts.dispatched - sum(counts.joined.values()))
                _add(lengths, labels, {**counts.joined, 1: counts.joined.get(1, 0) + at_once}, _LENGTHS)
        yield from (dispatched, lengths)
        rejected = CounterMetricFamily(_NAME + "rejected_requests", "Requests rejected.", labels=(*_FLOW, "reason"))
        crowded = CounterMetricFamily(
            _NAME + "request_dispatch_no_accommodation", "Dispatches that found too few seats.", labels=_FLOW
        )
        for name, level in self._control.levels.items():
            for (schema, reason), count in level.rejections.items():
                rejected.add_metric((name, schema, reason), count)
            for schema, count in level.no_room.items():
                crowded.add_metric((name, schema), count)
        yield from (rejected, crowded)

    def _of_measures(self) -> Iterator[Metric]:
        waits = HistogramMetricFamily(
            _NAME + "request_wait_duration_seconds", "Time in a queue.", labels=(*_FLOW, "execute")
        )
        executed = HistogramMetricFamily(
            _NAME + "request_execution_seconds", "Time of execution.", labels=(*_FLOW, "type")
        )
        estimates = HistogramMetricFamily(_NAME + "work_estimated_seats", "Estimated seats of requests.", labels=_FLOW)
        watchers = HistogramMetricFamily(_NAME + "watch_count_samples", "Watchers of written objects.", labels=_FLOW)
        for labels, measures in self._control.measures.items():
            level = self._control.levels[labels[0]]
            counts = level.flows.get(labels[1])
            if counts is not None and not level.spec.exempt:
                at_once = max(0, counts.dispatched - int(measures.waited.number))
                _add_durations(waits, (*labels, "true"), measures.waited, at_once=at_once)
                _add_durations(waits, (*labels, "false"), measures.waited_in_vain, at_once=measures.refused)
            _add_durations(executed, (*labels, "regular"), measures.executed)
            _add_durations(executed, (*labels, "watch"), measures.initialized)
            _add(estimates, labels, measures.seats, _ESTIMATES)
            _add(watchers, labels, measures.watchers, _WATCHERS)
        yield from (waits, executed, estimates, watchers)

    def _over_time(self) -> Iterator[Metric]:
        """Yield the histograms that have an observation for every nanosecond."""
        tables: tuple[tuple[str, str, Sequence[float], tuple[tuple[str, Callable[[Use], Shares]], ...]], ...] = (
            ("priority_level_seat_utilization", "Part of the seats in use.", _SEATS, (("executing", _seats),)),
            (
                "priority_level_request_utilization",
                "Requests, as a part of the limit.",
                _REQUESTS,
                (("waiting", _waiting), ("executing", _executing)),
            ),
            ("demand_seats", "Demand, as a part of the nominal seats.", _DEMAND, (("", _demand),)),
        )
        for name, text, bounds, phases in tables:
            phased = bool(phases[0][0])
            family = HistogramMetricFamily(_NAME + name, text, labels=(*_LEVEL, "phase") if phased else _LEVEL)
            for level, use in self._control.uses.items():
                for phase, shares in phases:
                    counts, total = shares(use).buckets(bounds)
                    family.add_metric((level, phase) if phased else (level,), buckets(bounds, counts), total)
            yield family
        yield self._of_kinds()

    def _of_kinds(self) -> Metric:
        """Return the numbers of reads and writes, as parts of all seats and of all places in queues."""
        control = self._control
        control.kinds.advance(trio.current_time())
        family = HistogramMetricFamily(
            _NAME + "read_vs_write_current_requests",
            "Reads and writes, as parts of the limits.",
            labels=("phase", "request_kind"),
        )
        levels = control.levels.values()
        seats = sum(level.limits.nominal for level in levels)
        places = sum(level.spec.queues * level.spec.queue_length for level in levels)
        for labels, shares in control.kinds.shares(seats, places).items():
            counts, total = shares.buckets(_READ_WRITE)
            family.add_metric(labels, buckets(_READ_WRITE, counts), total)
        return family


def _seats(use: Use) -> Shares:
    return use.seats


def _waiting(use: Use) -> Shares:
    return use.waiting


def _executing(use: Use) -> Shares:
    return use.executing


def _demand(use: Use) -> Shares:
    return use.demand


def _add(
    family: HistogramMetricFamily, labels: Sequence[str], values: Mapping[int, int], bounds: Sequence[int]
) -> None:
    """Add a histogram of numbers, given the count of each."""
    if values:
        counts = [0] * (len(bounds) + 1)
        for value, count in values.items():
            counts[bisect_left(bounds, value)] += count
        family.add_metric(labels, buckets(bounds, counts), sum(value * count for value, count in values.items()))


def _add_durations(
    family: HistogramMetricFamily, labels: Sequence[str], durations: Histogram, *, at_once: int = 0
) -> None:
    counts = durations.counts
    counts[0] += at_once
    if any(counts):
        family.add_metric(labels, buckets(durations.bounds, counts), durations.total)
