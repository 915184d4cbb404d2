"""GroupQuery: changes counted by several columns at once, each group with its first and last revision.

    GroupQuery(changes=ChangeQuery(namespace="shop"), by=("user_name", "operation"))

    Group(("jane", "2"), changes=7, first=206, last=311)        jane made seven updates, the first at revision 206

It tells who changed what, which groups are new, and what a search covered, without reading the changes themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.queries.changes import TEXTS, ChangeQuery
from kubechronicle.eventlog.queries.density import MAX_COUNTED
from kubechronicle.eventlog.records import Record, Who

BY: Final = ("resource", "namespace", "name", "uid", "user_name", "impersonator", "operation", "verb", "subresource")
"""The columns that changes can be grouped by."""

MAX_GROUPS: Final = 10_000
"""Groups of one answer: a few megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuery:
    """A query for groups, those with the most changes first.

    ``by``: columns of BY; none: all changes are one group.
    ``most``: number of groups that are returned.
    ``limit``: rows that may be counted.
    """

    changes: ChangeQuery
    by: tuple[str, ...] = ()
    most: int = MAX_GROUPS
    limit: int = MAX_COUNTED


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """``values``: of the columns of the query. ``first``, ``last``: the revisions of its first and last change."""

    values: tuple[str, ...]
    changes: int
    first: int
    last: int


def value_of(record: Record, column: str) -> str:
    """Return the text of a column of BY."""
    if column == "resource":
        return record.key.resource
    if column == "operation":
        return str(int(record.operation))
    return TEXTS[column](record)[0]


def grouped(rows: Iterable[Record], who: Mapping[int, Who], query: GroupQuery) -> list[ChangeGroup]:
    """Group records, in the order of revisions. ``who``: by revision. TooMany."""
    changes = query.changes
    between = [row for row in rows if changes.after < row.revision <= changes.until]
    if between:
        check_limit(between[0].revision, between[-1].revision, query)
    found: dict[tuple[str, ...], ChangeGroup] = {}
    for row in between:
        record = structs.replace(row, who=who[row.revision])
        if changes.matches(record):
            values = tuple(value_of(record, column) for column in query.by)
            group = found.get(values, ChangeGroup(values, 0, row.revision, row.revision))
            found[values] = ChangeGroup(values, group.changes + 1, group.first, row.revision)
    return sorted(found.values(), key=lambda group: (-group.changes, group.values))[: query.most]


def check_limit(first: int, last: int, query: GroupQuery) -> None:
    """TooMany: the query would count too many changes. Those of one object are counted in any case: by an index."""
    rows = last - first + 1
    if rows > query.limit and not is_of_one_object(query.changes):
        raise TooMany(rows, query.limit)


def is_of_one_object(changes: ChangeQuery) -> bool:
    """Tell whether a query names one resource and one object of it."""
    names = any(column in ("name", "uid") and text.equal and not text.prefix for column, text in changes.texts)
    return len(changes.resources) == 1 and (bool(changes.name) or names)
