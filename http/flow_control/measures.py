"""Numbers that flow control notes at each request, as cheap as it can: counts and seconds, no metric objects."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from kubechronicle.api.flow_control.queues import Level
from kubechronicle.api.meta.request_info import Query, RequestInfo
from kubechronicle.eventlog.measures import Histogram
from kubechronicle.eventlog.views.views import View

# -- estimates ---------------------------------------------------------------------------------------------------------
#
# The seats of a request: how much work it is, before it is done (k8s.io/apiserver, package flowcontrol/request).
#
# get                                  1
# list, watch from the beginning       1 for each BYTES_A_SEAT of the objects it returns, within the level's limit
# create, update, patch, delete        1, and for AFTER seconds 1 for each WATCHERS_A_SEAT watchers of the object

BYTES_A_SEAT: Final = 100_000
WATCHERS_A_SEAT: Final = 10
AFTER: Final = 0.005
"""Seconds for which the events of a write keep seats."""
MOST_OF_A_LIST: Final = 100
OBJECTS_A_SEAT: Final = 100
MOST_BY_COUNT: Final = 10
MOST_OF_A_WRITE: Final = 10
MUTATING: Final = frozenset({"create", "update", "patch", "delete"})
SAMPLE: Final = 16
"""Objects whose size stands for that of all."""
SAMPLE_KEPT: Final = 60.0
"""Seconds for which it does."""

Work = tuple[int, int, float]
"""Seats while it runs, seats after its end, seconds of the latter."""

ONE: Final[Work] = (1, 0, 0.0)


FindView = Callable[[str], View | None]
"""Return the view of a resource, if it has been used."""


class Estimates:
    """Estimates from the present views. ``by_size``: of lists, by the bytes of their objects, not by their number."""

    def __init__(self, find: FindView, *, by_size: bool = True) -> None:
        self._find = find
        self._by_size = by_size
        self._sizes: dict[str, tuple[float, int]] = {}  # resource -> when it was measured, average bytes

    def work(self, info: RequestInfo, query: Query, most: int, watchers: defaultdict[int, int]) -> Work:
        """Return the work of a request.

        ``most``: the seats that one request of its level may take; 0: unlimited.
        ``watchers``: a write is counted here by the number of its object's watchers.
        """
        verb = info.verb
        if not info.is_resource or verb == "get":
            return ONE
        if verb in MUTATING:
            return self._of_write(info, most, watchers)
        if verb == "list" or (verb == "watch" and _begins_with_state(query)):
            return self._of_list(info, query, most)
        return ONE

    def _of_write(self, info: RequestInfo, most: int, counts: defaultdict[int, int]) -> Work:
        view = self._find(info.group_resource)
        if view is None or (info.subresource == "token" and info.resource == "serviceaccounts"):
            return ONE
        watchers = view.watchers.concerned(info.namespace, info.name)
        counts[watchers] += 1
        if watchers < WATCHERS_A_SEAT:
            return ONE
        seats = math.ceil(watchers / WATCHERS_A_SEAT)
        final = min(seats, most or MOST_OF_A_WRITE, MOST_OF_A_WRITE)
        return 1, final, AFTER * seats / final

    def _of_list(self, info: RequestInfo, query: Query, most: int) -> Work:
        view = self._find(info.group_resource)
        if view is None or info.name:
            return ONE
        count = view.count(info.namespace)
        if not self._by_size:  # kube-apiserver's cache looks at all objects, whatever the limit is
            return max(1, min(math.ceil(count / OBJECTS_A_SEAT), most or MOST_BY_COUNT, MOST_BY_COUNT)), 0, 0.0
        limit = query.get("limit")
        if limit and limit.isdecimal() and 0 < int(limit[:9]) < count:
            count = int(limit[:9])
        seats = math.ceil(count * self._size(view) / BYTES_A_SEAT)
        return max(1, min(seats, most or MOST_OF_A_LIST, MOST_OF_A_LIST)), 0, 0.0

    def _size(self, view: View) -> int:
        """Return the average bytes of an object, measured on a few."""
        now = trio.current_time()
        known = self._sizes.get(view.resource)
        if known is None or now - known[0] > SAMPLE_KEPT:
            some = view.page("", None, SAMPLE)
            known = self._sizes[view.resource] = (now, sum(len(one.json) for one in some) // max(len(some), 1))
        return known[1]


def _begins_with_state(query: Query) -> bool:
    """Tell whether a watch begins with the present objects."""
    return query.get("resourceVersion") in ("", "0") or query.flag("sendInitialEvents")


# -- measures ----------------------------------------------------------------------------------------------------------

DURATIONS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Upper bounds in seconds, as kube-apiserver's."""
READS, WRITES = "readOnly", "mutating"
"""Kinds of requests."""


class FlowMeasures:
    """The measures of one FlowSchema in one level.

    ``executed``: durations of execution; of a watch, until its initial events are sent (``initialized``).
    ``waited``, ``waited_in_vain``: of the requests that had to wait, and then ran or were rejected.
    ``refused``: requests that were rejected at once.
    ``seats``, ``watchers``: requests by estimated seats, and writes by number of watchers.
    """

    __slots__ = ("executed", "initialized", "refused", "seats", "waited", "waited_in_vain", "watchers")

    def __init__(self) -> None:
        self.executed = Histogram(DURATIONS)
        self.initialized = Histogram(DURATIONS)
        self.waited = Histogram(DURATIONS)
        self.waited_in_vain = Histogram(DURATIONS)
        self.refused = 0
        self.seats: defaultdict[int, int] = defaultdict(int)
        self.watchers: defaultdict[int, int] = defaultdict(int)

    def fold(self) -> None:
        """Count the durations that were noted."""
        for histogram in (self.executed, self.initialized, self.waited, self.waited_in_vain):
            histogram.fold()


class Use:
    """The use of one level over time.

    ``period``: the seconds at each demand (seats used and waiting) since the last adjustment.
    ``demand``, ``seats``, ``waiting``, ``executing``: seconds at each part of the limit, since the start of the server.
    """

    def __init__(self) -> None:
        self.period: dict[int, float] = {}
        self.demand = Shares()
        self.seats = Shares()
        self.waiting = Shares()
        self.executing = Shares()

    def add(self, times: Mapping[tuple[int, int, int, int], float], level: Level) -> None:
        """Add what a level has noted (Level.take_times)."""
        nominal = level.limits.nominal or 1
        places = max(1, level.spec.queue_length) * max(1, level.spec.queues)
        for (executing, used, waiting, seats_waiting), seconds in times.items():
            wanted = used + seats_waiting
            self.period[wanted] = self.period.get(wanted, 0.0) + seconds
            self.demand.add(wanted / nominal, seconds)
            self.seats.add(used / (level.current or 1), seconds)
            self.waiting.add(waiting / places, seconds)
            self.executing.add(executing / nominal, seconds)

    def take_period(self) -> dict[int, float]:
        """Return ``period``, and begin a new one."""
        period, self.period = self.period, {}
        return period


class Number:
    """A number of requests over time. ``times``: the seconds at each value, from the first change on."""

    __slots__ = ("_last", "count", "times")

    def __init__(self) -> None:
        self.count = 0
        self.times: defaultdict[int, float] = defaultdict(float)
        self._last = 0.0

    def change(self, more: int, now: float) -> None:
        """Add to the number, which has been the same since the last call."""
        count, last = self.count, self._last
        if last:
            self.times[count] += now - last
        self._last = now
        self.count = count + more


class RequestKinds:
    """The numbers of reads and writes, ``executing`` and ``waiting``, by kind."""

    def __init__(self) -> None:
        self.executing = {kind: Number() for kind in (READS, WRITES)}
        self.waiting = {kind: Number() for kind in (READS, WRITES)}

    def current(self) -> dict[str, int]:
        """Return the number of executing requests by kind."""
        return {kind: number.count for kind, number in self.executing.items()}

    def advance(self, now: float) -> None:
        """Note the time since the last change."""
        for number in (*self.executing.values(), *self.waiting.values()):
            number.change(0, now)

    def shares(self, executing: int, waiting: int) -> dict[tuple[str, str], Shares]:
        """Return the shares of the given limits by (phase, kind)."""
        result = {}
        for phase, numbers, limit in (("executing", self.executing, executing), ("waiting", self.waiting, waiting)):
            for kind, number in numbers.items():
                shares = result[phase, kind] = Shares()
                for count, seconds in number.times.items():
                    shares.add(count / (limit or 1), seconds)
        return result


class Shares:
    """Seconds by a fraction of a limit. Few fractions occur, but their number is bounded all the same."""

    __slots__ = ("_seconds",)
    KEPT: Final = 1000

    def __init__(self) -> None:
        self._seconds: dict[float, float] = {}

    def add(self, fraction: float, seconds: float) -> None:
        if len(self._seconds) >= self.KEPT:
            fraction = round(fraction, 2)
        self._seconds[fraction] = self._seconds.get(fraction, 0.0) + seconds

    def buckets(self, bounds: Sequence[float]) -> tuple[list[float], float]:
        """Return the nanoseconds for each bound and above all, and the sum of the fractions, each nanosecond once.

        kube-apiserver's histograms have an observation at the end of every nanosecond.
        """
        counts = [0.0] * (len(bounds) + 1)
        total = 0.0
        for fraction, seconds in self._seconds.items():
            counts[bisect_left(bounds, fraction)] += seconds * 1e9
            total += fraction * seconds * 1e9
        return counts, total
