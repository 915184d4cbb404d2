"""Moments and rights in several logs (eventlog/layout.py): a moment of the main log, found in another one by its time.

    main log        41 at 14:00:00.100         42 at 14:00:03
    log of Leases   …7 at 14:00:00.050         …8 at 14:00:01         at revision 41, Leases were as of …7

Two databases have two clocks: such a moment is as exact as these agree. Within one log, moments are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubechronicle.actors.history.namespace_creation import created_at
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment
from kubechronicle.eventlog.layout import OVERRIDES, OtherLog, parse
from kubechronicle.eventlog.records import Moment


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
