"""How many changes there were, by time and by one thing they have in common: what a timeline is drawn from.

    DensityQuery(ChangeQuery(), edges=(nine, ten, eleven), by="resource")     of each resource, in each of two hours

Buckets are half open: the first holds what was committed at ``edges[0]`` or later, but before ``edges[1]``. Commits
are in the order of revisions, so edges are turned into revisions first, and nothing but the columns asked about is
read: counting a range by resource, by user or by namespace without further conditions is answered from an index alone.
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

# Rows one question may count: about a second of a Postgres process.
MAX_COUNTED: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityQuery:
    """``edges``: at least two, ascending. ``most``: values told by name, those with the most changes; the others are
    counted together. ``limit``: rows that may be counted."""

    changes: ChangeQuery
    edges: tuple[datetime, ...]
    by: By = "resource"
    most: int = 10
    limit: int = MAX_COUNTED


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """``value`` of the column asked about; None: all that are not told by name."""

    bucket: int
    value: str | None
    changes: int


def value_of(record: Record, by: By) -> str:
    if by == "resource":
        return record.key.resource
    if by == "namespace":
        return record.key.namespace
    if by == "operation":
        return str(int(record.operation))
    return record.who.user if record.who is not None else ""


def counted(rows: Iterable[Record], who: Mapping[int, Who], query: DensityQuery) -> list[Count]:
    """Of records in the order of revisions, with who made each. TooMany."""
    between = [
        row
        for row in rows
        if query.edges[0] <= row.committed_at < query.edges[-1]
        and query.changes.after < row.revision <= query.changes.until
    ]
    if between:
        check_limit(between[-1].revision - between[0].revision + 1, query)
    found: Counter[tuple[int, str]] = Counter()
    for row in between:
        record = structs.replace(row, who=who[row.revision])
        if query.changes.matches(record):
            found[bisect_right(query.edges, record.committed_at) - 1, value_of(record, query.by)] += 1
    return folded((Count(bucket, value, number) for (bucket, value), number in found.items()), query.most)


def check_limit(changes: int, query: DensityQuery) -> None:
    if changes > query.limit:
        raise TooMany(changes, query.limit)


def folded(counts: Iterable[Count], most: int) -> list[Count]:
    """In order of bucket and value, with only ``most`` values by name; of equally many changes the first by name."""
    counts = list(counts)
    totals: Counter[str] = Counter()
    for count in counts:
        totals[count.value or ""] += count.changes
    named = {value for value, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:most]}
    found: Counter[tuple[int, str | None]] = Counter()
    for count in counts:
        found[count.bucket, count.value if count.value in named else None] += count.changes
    order = sorted(found.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or ""))
    return [Count(bucket, value, number) for (bucket, value), number in order]


def within(query: ChangeQuery, edges: Sequence[int]) -> ChangeQuery:
    """Only what lies between the first and the last edge, given as revisions."""
    return replace(query, after=max(query.after, edges[0] - 1), until=min(query.until, edges[-1] - 1))
