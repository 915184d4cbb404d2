"""The statement that selects the changes of a ChangeQuery (queries/changes.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.sql import HEAD_COLUMNS, RECORD_COLUMNS, log_table
from kubechronicle.eventlog.queries.changes import SUBRESOURCE, TEXTS, ChangeQuery, Text
from kubechronicle.eventlog.records import Record, Who

WHO_COLUMNS: Final = (
    "user_name, user_uid, user_groups, user_extra, impersonator, verb, request_uri, user_agent, source_address,"
    " field_manager, audit_id"
)
WHO_WIDTH: Final = 11
NUL: Final = "\0"
VALUE: Final = ":value"
"""The place of the argument in a condition."""

_PATH: Final = "split_part(request_uri, '?', 1)"
# Most paths end with the object's name, and a regular expression costs ten times as much as this comparison.
_SUBRESOURCE: Final = (
    f"case when right({_PATH}, length(name) + 1) = '/' || name"
    f" and right({_PATH}, 2 * length(name) + 2) <> '/' || name || '/' || name then ''"
    f" else coalesce(substring(request_uri from '{SUBRESOURCE}'), '') end"
)
COLUMNS: Final = {
    "actor": ("user_name", "impersonator"),
    "subresource": (_SUBRESOURCE,),
}
"""The expressions of columns with text conditions, where they are not the column of that name."""


def statement(query: ChangeQuery, limit: int, short: Iterable[str]) -> tuple[str, list[Any]]:
    """Return the SELECT of at most ``limit`` changes with the records they replaced, and its arguments.

    Columns: HEAD_COLUMNS, the record, WHO_COLUMNS, the replaced record if it is wanted. If nothing matches: one row,
    nulls after the head. Cost: one index range, of the key, resource, namespace or user that the query names, else of
    the newest (or oldest) rows. Postgres does not know that the head is one row: without its limit, it would keep a
    copy of the changes for others.
    """
    conditions, arguments = conditions_of(query)
    arguments.append(limit)
    order = "desc" if query.newest_first else "asc"
    text = f"""
select {HEAD_COLUMNS}, r.*{", p.*" if query.with_replaced else ""} from
    (select * from kubechronicle.head limit 1) h left join lateral (
    select {RECORD_COLUMNS}, {WHO_COLUMNS} from {table_of(query, short)}
    where {" and ".join(conditions)} order by revision {order} limit ${len(arguments)}) r on true
{_REPLACED if query.with_replaced else ""}
order by r.revision {order}
"""
    return text, arguments


_REPLACED: Final = f"""
left join lateral (
    select {RECORD_COLUMNS} from kubechronicle.log where revision = r.previous_revision
    union all
    select {RECORD_COLUMNS} from kubechronicle.kept where revision = r.previous_revision limit 1) p
    on r.previous_revision > 0
"""


def table_of(query: ChangeQuery, short: Iterable[str]) -> str:
    """Return the log, or the table of the one retention class that has all resources of the query."""
    classes = {resource in set(short) for resource in query.resources}
    return "kubechronicle.log" if len(classes) != 1 else log_table("short" if True in classes else "long")


def conditions_of(query: ChangeQuery) -> tuple[list[str], list[Any]]:
    """Return the conditions on a row of the log, and their arguments."""
    arguments: list[Any] = [query.after, query.until]
    conditions = ["revision > $1::bigint", "revision <= $2::bigint"]

    def add(condition: str, value: Any) -> None:
        if isinstance(value, str) and NUL in value:
            # No text of Postgres holds NUL, not even one in a query: no row has the value.
            conditions.append("true" if "<>" in condition or "= false" in condition else "false")
            return
        arguments.append(value)
        conditions.append(condition.replace(VALUE, f"${len(arguments)}"))

    if len(query.resources) == 1:
        add("resource = :value", query.resources[0])
    elif query.resources:
        add("resource = any (:value::text[])", list(query.resources))
    if query.not_resources:
        add("resource <> all (:value::text[])", list(query.not_resources))
    if query.namespace:
        add("namespace = :value", query.namespace)
    elif query.namespaced is not None:
        add("namespace <> :value" if query.namespaced else "namespace = :value", "")
    if query.name:
        add("name = :value", query.name)
    if query.operations:
        add("operation = any (:value::smallint[])", [int(operation) for operation in query.operations])
    conditions += conditions_on_marks(query, arguments)
    for column, text in query.texts:
        if column not in TEXTS:
            raise ValueError(f"{column} is not a column with text conditions")
        add(_text_condition(COLUMNS.get(column, (column,)), text), text.value)
    return conditions, arguments


def conditions_on_marks(query: ChangeQuery, arguments: list[Any]) -> list[str]:
    """Return the conditions on a row by the marks of the query (queries/retained.py); append their arguments."""
    conditions = []
    for mark, resources in query.floors:
        arguments.append(list(resources))
        conditions.append(f"(revision > {int(mark)}::bigint or resource <> all (${len(arguments)}::text[]))")
    if query.rest:
        arguments.append(list(query.named))
        conditions.append(f"(revision > {int(query.rest)}::bigint or resource = any (${len(arguments)}::text[]))")
    return conditions


def _text_condition(columns: Sequence[str], text: Text) -> str:
    if text.prefix:
        found = " or ".join(f"starts_with({column}, :value)" for column in columns)
        return f"({found}) = {str(text.equal).lower()}"
    if text.equal:
        return "(" + " or ".join(f"{column} = :value" for column in columns) + ")"
    return " and ".join(f"{column} <> :value" for column in columns)


def change_of(row: Any, at: int, replaced: int | None = None) -> tuple[Record, Record | None]:
    """Return the record of a row, with ``who``, and the record it replaced. The arguments are their first columns."""
    record = rows.record(row, at, who_of(row, at + rows.RECORD_WIDTH))
    return record, None if replaced is None or row[replaced] is None else rows.record(row, replaced)


def who_of(row: Any, at: int) -> Who:
    """Return the Who in the WHO_COLUMNS of a row, from column ``at`` on."""
    user, uid, groups, extra, impersonator, verb, uri, agent, address, manager, audit_id = row[at : at + 11]
    return Who(
        user=user,
        uid=uid,
        groups=tuple(groups),
        extra={key: tuple(values) for key, values in orjson.loads(extra).items()} if extra else {},
        impersonator=impersonator,
        verb=verb,
        request_uri=uri,
        user_agent=agent,
        source_address=address,
        field_manager=manager,
        audit_id=audit_id,
    )
