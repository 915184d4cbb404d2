"""DensityQuery: counts of changes by time and by one column, the data of a timeline.

    DensityQuery(ChangeQuery(), edges=(nine, ten, eleven), by="resource")     per resource, in each of two hours

Buckets are half open: the first holds changes committed from ``edges[0]`` on, but before ``edges[1]``. Commit times
ascend with revisions, so edges are converted to revisions first, and only the needed columns are read. Without further
conditions, counts by resource, user or namespace come from an index alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from msgspec import structs

from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Record, Who

By = Literal["resource", "user_name", "namespace", "operation"]
BY: Final[tuple[By, ...]] = ("resource", "user_name", "namespace", "operation")

# Rows that one query may count: about a second of a Postgres process.
MAX_COUNTED: Final = 2_000_000
MOST_NAMED: Final = 10
"""Values that are counted by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityQuery:
    """A query for counts.

    ``edges``: at least two, ascending.
    ``most``: number of values counted by name, those with the most changes; the others are counted together.
    ``limit``: rows that may be counted.
    """

    changes: ChangeQuery
    edges: tuple[datetime, ...]
    by: By = "resource"
    most: int = MOST_NAMED
    limit: int = MAX_COUNTED


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """``value``: of the column ``by``; None: the sum of all values not counted by name."""

    bucket: int
    value: str | None
    changes: int


def value_of(record: Record, by: By) -> str:
    """Return the text of the column ``by``."""
    if by == "resource":
        return record.key.resource
    if by == "namespace":
        return record.key.namespace
    if by == "operation":
        return str(int(record.operation))
    return record.who.user if record.who is not None else ""


def counted(rows: Iterable[Record], who: Mapping[int, Who], query: DensityQuery) -> list[Count]:
    """Count records, in the order of revisions. ``who``: by revision. TooMany."""
    between = [
        row
        for row in rows
        if query.edges[0] <= row.committed_at < query.edges[-1]
        and query.changes.after < row.revision <= query.changes.until
    ]
    if between:
        check_limit(between[-1].revision - between[0].revision + 1, query)
    counts: Counter[tuple[int, str]] = Counter()
    for row in between:
        record = structs.replace(row, who=who[row.revision])
        if query.changes.matches(record):
            counts[bisect_right(query.edges, record.committed_at) - 1, value_of(record, query.by)] += 1
    return folded((Count(bucket, value, number) for (bucket, value), number in counts.items()), query.most)


def check_limit(changes: int, query: DensityQuery) -> None:
    """TooMany: the query would count too many changes."""
    if changes > query.limit:
        raise TooMany(changes, query.limit)


def folded(counts: Iterable[Count], most: int) -> list[Count]:
    """Return the counts by bucket and value, sorted, with only ``most`` values by name. Ties go to the first by
    name."""
    counts = list(counts)
    totals: Counter[str] = Counter()
    for count in counts:
        totals[count.value or ""] += count.changes
    named = {value for value, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:most]}
    sums: Counter[tuple[int, str | None]] = Counter()
    for count in counts:
        sums[count.bucket, count.value if count.value in named else None] += count.changes
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or ""))
    return [Count(bucket, value, number) for (bucket, value), number in ordered]


def within(query: ChangeQuery, edges: Sequence[int]) -> ChangeQuery:
    """Return the query restricted to the range of the edges, which are revisions."""
    return replace(query, after=max(query.after, edges[0] - 1), until=min(query.until, edges[-1] - 1))
