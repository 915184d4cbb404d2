"""Moments and rights in several logs (eventlog/layout.py): a moment of the main log, found in another one by its time.

    main log        41 at 14:00:00.100         42 at 14:00:03
    log of Leases   …7 at 14:00:00.050         …8 at 14:00:01         at revision 41, Leases were as of …7

Two databases have two clocks: such a moment is as exact as these agree. Within one log, moments are exact. A position
with the revisions of all logs (api/history/positions.py) is exact in each of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import NOISY_RESOURCES
from kubechronicle.api.history.positions import SPAN, is_joined, place_of, revisions_of
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment, FutureRevision, UnknownMoment
from kubechronicle.eventlog.layout import OVERRIDES, OtherLog, parse
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Moment, Operation

NAMESPACES = "namespaces"


async def at_time(log: Reads, time: datetime) -> Moment:
    """Return the newest revision of a log at a time; for a time ahead of its clock, its present one. BeforeHistory."""
    try:
        return await log.past.moment(time)
    except FutureMoment:
        return Moment(await log.wait_consistent(), time)


async def same_moment(reads: Reads, log: Reads, revision: int) -> Moment:
    """Return the moment of a log at the commit time of a revision, which may be of another log.

    BeforeHistory, FutureRevision.
    """
    origin = reads.of_revision(revision)
    if origin is log:
        return await log.past.moment(revision)
    return await at_time(log, (await origin.past.moment(revision)).time)


class LogBounds:
    """The bounds of selections as revisions of one log (revision_selection.Bounds).

    ``reads``: of all logs; ``newest``: returns the newest revision of this one.
    """

    def __init__(self, reads: Reads, log: Reads, newest: Callable[[], Awaitable[int]]) -> None:
        self._reads = reads
        self._log = log
        self._newest = newest

    def holds(self, revision: int) -> bool:
        return place_of(revision) == self._log.place or len(self._reads.logs) == 1

    async def at(self, when: datetime | timedelta) -> int:
        try:
            return (await self._log.log.revision_at(when)).revision
        except BeforeHistory:
            return 0
        except FutureMoment:
            return await self._newest()

    async def reached(self, position: int) -> int:
        """As Bounds. StatusError 410: the position is of a log that is not given."""
        revisions, joined = revisions_of(position), is_joined(position)
        missing = revisions.keys() - {each.place for each in self._reads.logs}
        if missing and (joined or len(self._reads.logs) > 1):
            raise status.expired(f"revision {revisions[min(missing)]} is of a database that this server is not given")
        if joined:
            if self._log.place in revisions:
                return revisions[self._log.place]
            position = revisions.get(0, 0)
        if not position or len(self._reads.logs) == 1 or position == self._log.place * SPAN:
            return position
        # The last number of one log is the beginning of the next one, whose first change has a time.
        position += position % SPAN == 0
        if self.holds(position):
            return position
        try:
            return (await same_moment(self._reads, self._log, position)).revision
        except BeforeHistory:
            return 0
        except UnknownMoment as error:
            return error.revision
        except FutureRevision:
            return await self._newest()


async def created_at(reads: Reads, namespace: str) -> int:
    """Return the revision that created the present namespace of a name, or the last one; 0: there was none.

    If namespaces have no history that far back, return its beginning: earlier changes may be of another namespace.
    """
    entry = reads.peek(NAMESPACES, "", namespace)
    if entry is not None:
        return entry.create_revision
    query = ChangeQuery(
        namespaced=False,
        name=namespace,
        resources=(NAMESPACES,),
        operations=(Operation.CREATE,),
        with_replaced=False,
    )
    changes = await reads.log.changes(query, limit=1)
    if changes:
        return changes[0][0].revision
    mark = (await reads.log.head()).compacted_for(NAMESPACES)
    return mark + 1 if mark else 0


async def created_in(reads: Reads, log: Reads, namespace: str) -> int:
    """Return the first revision of a log that is of the present namespace of a name, 0 if all are (``created_at``)."""
    created = await created_at(reads, namespace)
    if log is reads or not created:
        return created
    try:
        time = (await reads.past.moment(created)).time
    except BeforeHistory as error:
        if error.oldest is None:
            return 0
        time = error.oldest.time
    try:
        return (await at_time(log, time)).revision + 1
    except BeforeHistory:
        return 0


def may_be_elsewhere(resource: str) -> bool:
    """Tell whether other logs than the main one may have changes of a resource.

    They have Events, Leases, and what each log records about itself: erasures, drops, its place in the layout.
    """
    return resource in NOISY_RESOURCES or resource.endswith(f".{HISTORY}")


def recorded_logs(reads: Reads) -> Sequence[OtherLog]:
    """Return the other logs of the present layout, as this replica knows it."""
    view = reads.views.find(OVERRIDES.resource)
    entry = view.get("", OVERRIDES.name) if view is not None else None
    return parse(entry.json) if entry is not None else ()


async def log_at(reads: Reads, resource: str, moment: Moment) -> Reads | None:
    """Return the reads of the log that held a resource at a moment of the main log. None: that log is not open now."""
    if not recorded_logs(reads):
        return reads
    record = await reads.log.get_at(OVERRIDES, revision=moment.revision)
    holder = next((log for log in parse(record.body) if resource in log.resources), None) if record else None
    if holder is None:
        return reads if reads.of(resource) is reads else reads.main
    log = reads.of_revision(holder.first + 1)
    return None if log is reads else log
