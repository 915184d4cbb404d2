"""Numbers that flow control notes at each request, as cheap as it can: counts and seconds, no metric objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from kubechronicle.api.flow_control.queues import Level

DURATIONS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Upper bounds in seconds, as kube-apiserver's."""


class Durations:
    """Numbers of durations by upper bound, the last one for those above all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATIONS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(DURATIONS, seconds)] += 1
        self.total += seconds


class FlowMeasures:
    """The measures of one FlowSchema in one level.

    ``executed``: durations of execution; of a watch, until its initial events are sent (``initialized``).
    ``waited``, ``waited_in_vain``: of the requests that had to wait, and then ran or were rejected.
    ``refused``: requests that were rejected at once.
    ``seats``, ``watchers``: requests by estimated seats, and writes by number of watchers.
    """

    __slots__ = ("executed", "initialized", "refused", "seats", "waited", "waited_in_vain", "watchers")

    def __init__(self) -> None:
        self.executed = Durations()
        self.initialized = Durations()
        self.waited = Durations()
        self.waited_in_vain = Durations()
        self.refused = 0
        self.seats: dict[int, int] = {}
        self.watchers: dict[int, int] = {}


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


class Kinds:
    """The numbers of reads and writes, executing and waiting, over time.

    ``executing``, ``waiting``: the present numbers, by kind ("readOnly", "mutating"). Only ``execute`` and ``wait``
    change them.
    """

    KINDS: Final = ("readOnly", "mutating")

    def __init__(self, executing: dict[str, int]) -> None:
        self.executing = executing
        self.waiting = dict.fromkeys(self.KINDS, 0)
        self._executing = {kind: _Number() for kind in self.KINDS}
        self._waiting = {kind: _Number() for kind in self.KINDS}

    def execute(self, kind: str, more: int, now: float) -> None:
        """Count requests that begin, or end with ``more`` below 0."""
        number = self.executing[kind]
        self._executing[kind].note(number, now)
        self.executing[kind] = number + more

    def wait(self, kind: str, more: int, now: float) -> None:
        """Count requests that begin to wait, or wait no longer."""
        number = self.waiting[kind]
        self._waiting[kind].note(number, now)
        self.waiting[kind] = number + more

    def advance(self, now: float) -> None:
        """Note the time since the last change."""
        for kind in self.KINDS:
            self.execute(kind, 0, now)
            self.wait(kind, 0, now)

    def shares(self, executing: int, waiting: int) -> dict[tuple[str, str], Shares]:
        """Return the shares of the given limits by (phase, kind)."""
        result = {}
        for phase, numbers, limit in (("executing", self._executing, executing), ("waiting", self._waiting, waiting)):
            for kind in self.KINDS:
                shares = result[phase, kind] = Shares()
                for number, seconds in numbers[kind].times.items():
                    shares.add(number / (limit or 1), seconds)
        return result


class _Number:
    """A number over time. ``times``: the seconds at each value, from the first note on."""

    __slots__ = ("_last", "times")

    def __init__(self) -> None:
        self.times: dict[int, float] = {}
        self._last = 0.0

    def note(self, number: int, now: float) -> None:
        """Note the time since the last call, at the value that ends now."""
        if self._last:
            self.times[number] = self.times.get(number, 0.0) + now - self._last
        self._last = now


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
        """Return the nanoseconds at or below each bound and in all, and the sum of the fractions, each nanosecond once.

        kube-apiserver's histograms have an observation at the end of every nanosecond.
        """
        counts = [0.0] * (len(bounds) + 1)
        total = 0.0
        for fraction, seconds in self._seconds.items():
            counts[bisect_left(bounds, fraction)] += seconds * 1e9
            total += fraction * seconds * 1e9
        return list(accumulate(counts)), total
