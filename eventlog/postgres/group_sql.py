"""The statement that groups changes for a GroupQuery (queries/groups.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubechronicle.eventlog.postgres.change_sql import COLUMNS, conditions_of, table_of
from kubechronicle.eventlog.queries.groups import BY, GroupQuery


def statement(query: GroupQuery, short: Sequence[str]) -> tuple[str, list[Any]]:
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
