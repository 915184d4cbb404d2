"""RevisionDensity: counts of revisions over time, for drawing a timeline. The log counts, not its readers.

Permission to list revisions suffices: the counts reveal only who changed which kind of object when. Selectors that need
the objects (labels, changed fields, reasons) are rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubechronicle.actors.history.log_changes import Share, everywhere, position_of
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS, written_time
from kubechronicle.eventlog.errors import BeforeHistory, FutureRevision, TooMany
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.density import MOST_NAMED, By, Count, DensityQuery, folded

BY: Final[Mapping[str, By]] = {
    "resource": "resource",
    "user": "user_name",
    "namespace": "namespace",
    "operation": "operation",
}
"""Columns to count by: name in the API → name in the log."""
MAX_BUCKETS: Final = 400
MOST_OF_LOG: Final = 1000
"""Values that each of several logs counts by name. One that is rarer in one of them is there among the others."""
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


async def density(shares: Sequence[Share], options: DensityOptions) -> dict[str, Any]:
    """Return the RevisionDensity of a selection, over all its logs.

    Buckets begin at multiples of their width since 1970 and cover the time from the first selected revision to the
    last. Empty buckets are left out. StatusError 400.
    """
    if shares[0].selected.needs_objects:
        raise status.bad_request("labels, changed fields and reasons can't be counted by: list the revisions instead")
    newest = {share.changes: await share.changes.newest(None) for share in shares}
    last, spans = position_of(newest), dict[Share, tuple[datetime, datetime]]()
    for share in shares:
        share.narrow(until=newest[share.changes], **everywhere(options.everything))
        first_and_last = share.query.after + 1, share.query.until
        if not share.ended and (found := await _span(share.changes.log, *first_and_last)) is not None:
            spans[share] = found
    span = (min(first for first, _ in spans.values()), max(end for _, end in spans.values())) if spans else None
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
        counts = await _counts(list(spans), edges, BY[options.by])
    except TooMany as error:
        raise status.bad_request(
            f"there are {error.changes} revisions from {written_time(span[0])} to {written_time(span[1])}, more than "
            f"the {error.limit} that are counted at once: make the time shorter (fieldSelector=time.from=1h)"
        ) from None
    return _answer(last, width, options.by, edges[0], counts)


async def _counts(shares: Sequence[Share], edges: tuple[datetime, ...], by: By) -> Sequence[Count]:
    """Return the counts of all logs together. TooMany."""
    most = MOST_NAMED if len(shares) == 1 else MOST_OF_LOG
    found = [
        await share.changes.log.density(DensityQuery(changes=share.query, edges=edges, by=by, most=most))
        for share in shares
    ]
    return found[0] if len(found) == 1 else summed([count for counts in found for count in counts])


def summed(counts: Sequence[Count]) -> list[Count]:
    """Return counts of several logs as one log would have counted them, but for values rarer than MOST_OF_LOG."""
    named = folded((count for count in counts if count.value is not None), MOST_NAMED)
    sums = Counter({(count.bucket, count.value): count.changes for count in named})
    for count in counts:
        if count.value is None:
            sums[count.bucket, None] += count.changes
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or ""))
    return [Count(bucket, value, changes) for (bucket, value), changes in ordered]


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
