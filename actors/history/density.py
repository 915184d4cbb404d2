"""RevisionDensity: counts of revisions over time, for drawing a timeline. The log counts, not its readers.

Permission to list revisions suffices: the counts reveal only who changed which kind of object when. Selectors that need
the objects (labels, changed fields, reasons) are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS, written_time
from kubechronicle.eventlog.errors import BeforeHistory, FutureRevision, TooMany
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.density import By, Count, DensityQuery

BY: Final[Mapping[str, By]] = {
    "resource": "resource",
    "user": "user_name",
    "namespace": "namespace",
    "operation": "operation",
}
"""Columns to count by: name in the API → name in the log."""
MAX_BUCKETS: Final = 400
# Without a requested width, the first of WIDTHS that makes no more than COMFORTABLE buckets is chosen.
COMFORTABLE: Final = 120
WIDTHS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800, 2592000, 31536000)
)
EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityOptions:
    """Options of a density request.

    ``width``: of a bucket; None: chosen to fit.
    ``by``: a key of BY.
    ``everything``: count cluster-scoped objects too.
    """

    width: timedelta | None = None
    by: str = "resource"
    everything: bool = False


async def density(
    log: RevisionLog, reads: ChangeReads, selected: RevisionSelection, options: DensityOptions
) -> dict[str, Any]:
    """Return the RevisionDensity of a selection.

    Buckets begin at multiples of their width since 1970 and cover the time from the first selected revision to the
    last. Empty buckets are left out. StatusError 400.
    """
    if selected.needs_objects:
        raise status.bad_request("labels, changed fields and reasons can't be counted by: list the revisions instead")
    last = await reads.newest(None)
    changes = replace(selected.query, until=min(selected.query.until, last))
    if options.everything:
        changes = replace(changes, namespaced=None)
    span = None if selected.is_empty else await _span(log, changes.after + 1, changes.until)
    if span is None:
        return _answer(last, options.width or WIDTHS[0], options.by, EPOCH, ())
    width = options.width or _fitting(*span)
    first = (span[0] - EPOCH) // width
    buckets = (span[1] - EPOCH) // width + 1 - first
    if buckets > MAX_BUCKETS:
        raise status.bad_request(
            f"there are {buckets} buckets of that width from {written_time(span[0])} to {written_time(span[1])}, more "
            f"than {MAX_BUCKETS}: make them wider, or the time shorter (fieldSelector=time.from=1h)"
        )
    edges = tuple(EPOCH + (first + place) * width for place in range(buckets + 1))
    try:
        counts = await log.density(DensityQuery(changes=changes, edges=edges, by=BY[options.by]))
    except TooMany as error:
        raise status.bad_request(
            f"there are {error.changes} revisions from {written_time(span[0])} to {written_time(span[1])}, more than "
            f"the {error.limit} that are counted at once: make the time shorter (fieldSelector=time.from=1h)"
        ) from None
    return _answer(last, width, options.by, edges[0], counts)


async def _span(log: RevisionLog, first: int, last: int) -> tuple[datetime, datetime] | None:
    """Return the times of the first and the last revision between two, or None if there is none."""
    if first > last:
        return None
    try:
        return (await log.moment_of(first)).time, (await log.moment_of(last)).time
    except FutureRevision:
        return None
    except BeforeHistory as error:
        if error.oldest is None or error.oldest.revision > last:
            return None
        return error.oldest.time, (await log.moment_of(last)).time


def _fitting(first: datetime, last: datetime) -> timedelta:
    return next((width for width in WIDTHS if (last - first) // width < COMFORTABLE), WIDTHS[-1])


def _answer(revision: int, width: timedelta, by: str, start: datetime, counts: Sequence[Count]) -> dict[str, Any]:
    buckets: dict[int, dict[str, Any]] = {}
    totals: dict[str, int] = {}
    for count in counts:
        bucket = buckets.setdefault(
            count.bucket, {"time": written_time(start + count.bucket * width), "count": 0, "counts": {}}
        )
        bucket["count"] += count.changes
        if count.value is None:
            bucket["others"] = count.changes
        else:
            name = OPERATIONS[int(count.value)] if by == "operation" else count.value
            bucket["counts"][name] = count.changes
            totals[name] = totals.get(name, 0) + count.changes
    named = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionDensity",
        "metadata": {"resourceVersion": str(revision)},
        "bucketSeconds": width.total_seconds(),
        "by": by,
        "total": sum(count.changes for count in counts),
        "others": sum(count.changes for count in counts if count.value is None),
        "series": [{"name": name, "count": number} for name, number in named],
        "buckets": [buckets[place] for place in sorted(buckets)],
    }
