"""Histograms, and a log that measures the one below it."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import accumulate
from time import perf_counter
from typing import Any, Final, TypeVar, cast

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from kubechronicle.eventlog.log import Claim, RevisionLog
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Key, Moment, Operation, Record
from kubechronicle.eventlog.request_parts import LOG, timed

MOST_NOTED: Final = 256
"""Values that wait to be counted."""
DEFAULT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: Prometheus' default buckets."""


Labels = TypeVar("Labels", bound=tuple[str, ...])


class Histogram:
    """Numbers of values by upper bound, and their sum.

    ``note``: notes a value. It is the method of a list, so it takes no call of Python; the caller sees to it that
    ``fold`` is called at least every MOST_NOTED values (Metrics.fold). ``add`` does so itself.
    """

    __slots__ = ("_noted", "_series", "bounds", "note")

    def __init__(self, bounds: Sequence[float] = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds
        self._series: list[float] = [0] * (len(bounds) + 1) + [0.0]
        self._noted: list[float] = []
        self.note = self._noted.append

    def add(self, value: float) -> None:
        self._noted.append(value)
        if len(self._noted) >= MOST_NOTED:
            self.fold()

    def add_counted(self, counts: Sequence[float], total: float) -> None:
        """Add values that the caller has counted by bucket. ``total``: their sum."""
        self._series[:] = map(operator.add, self._series, (*counts, total))

    def fold(self) -> None:
        """Count the values that were noted."""
        noted, series = self._noted, self._series
        if not noted:
            return
        series[-1] += sum(noted)
        noted.sort()
        below = 0
        for bucket, bound in enumerate(self.bounds):
            upto = bisect_right(noted, bound)
            series[bucket] += upto - below
            below = upto
        series[-2] += len(noted) - below
        noted.clear()

    @property
    def counts(self) -> list[float]:
        """The number of values for each bound, and of those above all bounds."""
        self.fold()
        return self._series[:-1]

    @property
    def number(self) -> float:
        """The number of all values."""
        return sum(self.counts)

    @property
    def total(self) -> float:
        """The sum of all values."""
        self.fold()
        return self._series[-1]

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds."""
        self.add_counted(other.counts, other.total)

    def replace(self, before: Histogram, after: Histogram) -> None:
        """Put values in the place of others, which were added before. All have the same bounds."""
        self.merge(after)
        before.fold()
        self._series[:] = map(operator.sub, self._series, before._series)


def buckets(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Return the buckets of a metric: each bound with the number of all values up to it."""
    return list(zip([*map(floatToGoString, bounds), "+Inf"], accumulate(map(float, counts)), strict=True))


def add_to(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    """Add the values of a histogram to a metric, under the values of its labels."""
    family.add_metric(list(labels), buckets(histogram.bounds, histogram.counts), histogram.total)


def histogram_family(
    name: str, text: str, labels: Sequence[str], histograms: Mapping[Labels, Histogram]
) -> HistogramMetricFamily:
    """Return a metric with the values of histograms by the values of its labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in list(histograms.items()):
        add_to(family, values, histogram)
    return family


# -- measured log ------------------------------------------------------------------------------------------------------
#
# MeasuredLog: a RevisionLog that notes how long each round trip of another one takes, and how many fail.
#
# The operations are those that clients of etcd know, where they mean the same:
#
#     create, update, delete   a batch of one such change         batch   several changes, maybe of several resources
#     head                     the newest revision                get, list, count   a past state
#     watch                    following the log                  changes, density   queries of history
#     load                     all live objects, at the start


DURATIONS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
    45, 60,
)  # fmt: skip
"""Upper bounds in seconds: kube-apiserver's for etcd, and three shorter ones."""
OF_REQUESTS: Final = frozenset({"get", "list", "count", "changes", "states", "density"})
"""Operations of the task that serves a request."""
_OPERATIONS: Final = {Operation.CREATE: "create", Operation.UPDATE: "update", Operation.DELETE: "delete"}

T = TypeVar("T")
Pair = tuple[Record, Record | None]


class RoundTrips:
    """The round trips of one operation on one resource: their seconds, and failures."""

    __slots__ = ("failures", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(DURATIONS)
        self.failures = 0


class MeasuredLog:
    """See the head of this file. ``round_trips``: by (operation, resource); resource "": none or several."""

    def __init__(self, log: RevisionLog) -> None:
        self._log = log
        self.recorded = log.recorded
        self.branches = log.branches
        self.availability = log.availability
        self.round_trips: dict[tuple[str, str], RoundTrips] = {}

    async def _measured(self, operation: str, resource: str, call: Awaitable[T]) -> T:
        started = perf_counter()
        found = self.round_trips.get((operation, resource))
        if found is None:
            found = self.round_trips[operation, resource] = RoundTrips()
        try:
            if operation not in OF_REQUESTS:
                return await call
            with timed(LOG, "Read from the log", lambda: {"operation": operation}):
                return await call
        except Exception as error:
            found.failures += not isinstance(error, StopAsyncIteration)
            raise
        finally:
            found.seconds.add(perf_counter() - started)

    async def head(self) -> Head:
        return await self._measured("head", "", self._log.head())

    async def append(self, batch: Batch) -> BatchResult:
        operation, resource = "batch", ""
        if len(batch.transactions) == 1 and len(changes := batch.transactions[0].changes) == 1:
            operation, resource = _OPERATIONS[changes[0].operation], changes[0].key.resource
        return await self._measured(operation, resource, self._log.append(batch))

    async def settle(self, batch: Batch) -> BatchResult | None:
        return await self._measured("settle", "", self._log.settle(batch))

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        return await self._measured("watch", "", self._log.read(after=after, limit=limit, position=position))

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        return await self._measured("identities", "", self._log.identities(revisions))

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[Pair]:
        read = self._log.read_resource(resource, after=after, until=until, limit=limit, namespace=namespace, name=name)
        return await self._measured("watch", resource, read)

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[Pair]:
        return await self._measured("changes", "", self._log.changes(query, limit=limit))

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        return await self._measured("states", "", self._log.states(queries, limit=limit, texts=texts))

    async def density(self, query: DensityQuery) -> list[Count]:
        return await self._measured("density", "", self._log.density(query))

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        return await self._measured("groups", "", self._log.groups(query))

    async def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        # The contract says AsyncIterator. All logs use a generator, which must be closed by its own task.
        async with aclosing(cast(Any, self._log.load())) as chunks:
            while True:
                try:
                    chunk = await self._measured("load", "", anext(chunks))
                except StopAsyncIteration:
                    return
                yield chunk

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        return await self._measured("get", key.resource, self._log.get_at(key, revision=revision))

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        listed = self._log.list_at(resource, revision=revision, namespace=namespace, after=after, limit=limit)
        return await self._measured("list", resource, listed)

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        counted = self._log.count_at(resource, revision=revision, namespace=namespace, after=after)
        return await self._measured("count", resource, counted)

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        return await self._measured("moment", "", self._log.revision_at(when))

    async def moment_of(self, revision: int) -> Moment:
        return await self._measured("moment", "", self._log.moment_of(revision))

    # Not round trips

    @property
    def newest_seen_revision(self) -> int:
        return self._log.newest_seen_revision

    def follow(self, position: Callable[[], Position | None]) -> None:
        self._log.follow(position)

    def restart(self, newest: int) -> None:
        self._log.restart(newest)

    async def claim(self) -> Claim | None:
        return await self._log.claim()

    async def wait_claim_in_doubt(self) -> None:
        await self._log.wait_claim_in_doubt()

    async def wait_notified(self) -> None:
        await self._log.wait_notified()
