"""The statements that count changes: over time (queries/density.py), and by columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.eventlog.postgres.change_sql import COLUMNS, conditions_of, conditions_on_marks, table_of
from kubechronicle.eventlog.postgres.sql import log_table
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.density import DensityQuery
from kubechronicle.eventlog.queries.groups import BY, GroupQuery

# -- density sql -------------------------------------------------------------------------------------------------------
#
# The statement that counts changes for a DensityQuery (queries/density.py).


# $1 the edges, ascending. Returns their revisions.
EDGES: Final = (
    "select kubechronicle.first_revision_since(edge) from unnest($1::timestamptz[]) with ordinality as u (edge, place)"
    " order by place"
)


# Without "offset 0" Postgres expects as many groups as there are rows, and sorts them all.
_PART: Final = (
    "select bucket, value, {}count(*) as changes from (select {} from {} where {} offset 0) found group by 1, 2"
)


def counts_over_time(query: DensityQuery, edges: Sequence[int], short: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the SELECT of bucket, value (null: all other values) and count, and its arguments.

    ``edges``: as revisions. Cost: one index range, of an index with all needed columns if there is one.
    """
    changes, table = query.changes, table_of(query.changes, short)
    extra: list[tuple[str, str, list[str], ChangeQuery]] = []  # sign, table, resources and marks of additional counts
    if not changes.resources and (set(short) & set(changes.not_resources) or changes.floors or changes.rest):
        # Resources kept for a short time have many rows, in tables of their own: count only those that match. Their
        # marks are different too. The index by user or namespace lacks the resource, with which marks are compared.
        table, excluded = log_table("long"), tuple(sorted(set(changes.not_resources) - set(short)))
        counted = sorted(set(short) - set(changes.not_resources))
        extra.append(("", log_table("short"), counted, _marks_among(changes, short, within=True)))
        changes = replace(_marks_among(changes, short, within=False), not_resources=excluded)
    if query.by in ("user_name", "namespace") and changes.not_resources and _is_whole(changes):
        # The index by user lacks the resource: count all rows, and subtract those of the few excluded resources.
        extra.append(("-", table, list(changes.not_resources), changes))
        changes = replace(changes, not_resources=())
    bucket = f"{_bucket(list(edges[1:-1]), 0)} as bucket, {query.by}::text as value"
    arguments: list[Any] = []
    conditions = conditions_of(replace(changes, floors=(), rest=0), arguments)
    # The range as literals: generic plans ignore arguments, and the size of the range decides which plan is best.
    conditions[:2] = [f"revision > {int(changes.after)}::bigint", f"revision <= {int(changes.until)}::bigint"]
    parts = [_PART.format("", bucket, table, " and ".join((*conditions, *conditions_on_marks(changes, arguments))))]
    for sign, other, resources, marks in extra:
        arguments.append(resources)
        restricted = [*conditions, f"resource = any (${len(arguments)}::text[])"]
        restricted += conditions_on_marks(marks, arguments)
        parts.append(_PART.format(sign, bucket, other, " and ".join(restricted)))
    arguments.append(query.most)
    text = f"""
with counted as (
    select bucket, value, sum(changes) as changes from ({" union all ".join(parts)}) parts
    group by 1, 2 having sum(changes) > 0
), named as (
    select value from counted group by value order by sum(changes) desc, value collate "C" limit ${len(arguments)}
)
select c.bucket, n.value, sum(c.changes)::bigint as changes
from counted c left join named n on n.value = c.value where $1::bigint <= $2::bigint
group by 1, n.value order by 1, n.value collate "C" nulls last
"""
    return text, arguments


def _marks_among(changes: ChangeQuery, resources: Sequence[str], *, within: bool) -> ChangeQuery:
    """Return the query with only the marks of these resources, or (not ``within``) of all others. The rest: a long
    class may have resources without a name; of the short ones each that lacks a mark of its own is named instead."""
    floors = [(mark, tuple(name for name in of if (name in resources) is within)) for mark, of in changes.floors]
    kept = tuple((mark, of) for mark, of in floors if of)
    if not within:
        return replace(changes, floors=kept)
    unnamed = tuple(name for name in resources if name not in changes.named)
    rest = ((changes.rest, unnamed),) if changes.rest and unnamed else ()
    return replace(changes, floors=(*kept, *rest), rest=0, named=())


def _is_whole(changes: ChangeQuery) -> bool:
    """Return whether the query has no condition but a range of revisions and excluded resources."""
    return changes == ChangeQuery(
        after=changes.after, until=changes.until, newest_first=changes.newest_first, not_resources=changes.not_resources
    )


def _bucket(edges: Sequence[int], first: int) -> str:
    """Return the SQL expression of a revision's bucket: a written-out bisection, by far the fastest way in Postgres."""
    if not edges:
        return str(first)
    middle = len(edges) // 2
    low, high = _bucket(edges[:middle], first), _bucket(edges[middle + 1 :], first + middle + 1)
    return f"case when revision < {int(edges[middle])}::bigint then {low} else {high} end"


# -- group sql ---------------------------------------------------------------------------------------------------------
#
# The statement that groups changes for a GroupQuery (queries/groups.py).


def counts_by_columns(query: GroupQuery, short: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the SELECT of values, count, first and last revision, and its arguments.

    Cost: the index range of the key, resource, namespace or user that the query names, else the range of revisions.
    """
    if unknown := set(query.by) - set(BY):
        raise ValueError(f"changes cannot be grouped by {', '.join(sorted(unknown))}")
    changes = query.changes
    arguments: list[Any] = []
    conditions = conditions_of(changes, arguments)
    # The range as literals: generic plans ignore arguments, and the size of the range decides which plan is best.
    conditions[:2] = [f"revision > {int(changes.after)}::bigint", f"revision <= {int(changes.until)}::bigint"]
    columns = [f"{COLUMNS.get(column, (column,))[0]}::text" for column in query.by]
    names = [f"v{place}" for place in range(len(columns))]
    chosen = "".join(f"{column} as {name}, " for column, name in zip(columns, names, strict=True))
    arguments.append(query.most)
    grouping = f"group by {', '.join(names)}" if names else "having count(*) > 0"
    order = ", ".join(["count(*) desc", *(f'{name} collate "C"' for name in names)])
    # Without "offset 0" Postgres expects as many groups as there are rows, and sorts them all.
    text = f"""
select {"".join(f"{name}, " for name in names)}count(*)::bigint, min(revision)::bigint, max(revision)::bigint
from (select {chosen}revision from {table_of(changes, short)} where {" and ".join(conditions)} offset 0) found
where $1::bigint <= $2::bigint {grouping} order by {order} limit ${len(arguments)}
"""
    return text, arguments
