"""The statements that select the changes of a ChangeQuery (queries/changes.py), whole or as states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.sql import RECORD_COLUMNS, log_table
from kubechronicle.eventlog.queries.changes import SUBRESOURCE, TEXTS, ChangeQuery, Text
from kubechronicle.eventlog.queries.states import PLAIN_BODY, ObjectState
from kubechronicle.eventlog.records import Key, Record, Who

WHO_COLUMNS: Final = (
    "user_name, user_uid, user_groups, user_extra, impersonator, verb, request_uri, user_agent, source_address,"
    " field_manager, audit_id, reason, cause"
)
WHO_WIDTH: Final = 13
BRIEF_COLUMNS: Final = (
    "revision, resource, namespace, name, previous_revision, operation, object, committed_at, user_name, verb,"
    " request_uri, audit_id"
)
"""The columns of a brief query's change. Each column costs Postgres and asyncpg some 0.2 µs."""
BRIEF_WIDTH: Final = 12
BRIEF_OBJECT: Final = 6
"""The place of the object in them."""
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

    Columns: the record and WHO_COLUMNS, or BRIEF_COLUMNS; then the replaced record if it is wanted. Cost: one index
    range, of the key, resource, namespace or user that the query names, else of the newest (or oldest) rows. The head
    is not joined: Postgres would sort the result then, which costs as much as the rest.
    """
    arguments: list[Any] = []
    conditions = conditions_of(query, arguments)
    arguments.append(limit)
    order = "desc" if query.newest_first else "asc"
    columns = BRIEF_COLUMNS if query.brief else f"{RECORD_COLUMNS}, {WHO_COLUMNS}"
    text = f"""
select r.*{", p.*" if query.with_replaced else ""} from (
    select {columns} from {table_of(query, short)}
    where {" and ".join(conditions)} order by revision {order} limit ${len(arguments)}) r
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


SHORT: Final = log_table("short")
LONG: Final = log_table("long")


def table_of(query: ChangeQuery, short: Iterable[str]) -> str:
    """Return the log, or the table of the one retention class that has all resources of the query."""
    classes = {resource in set(short) for resource in query.resources}
    return "kubechronicle.log" if len(classes) != 1 else (SHORT if True in classes else LONG)


def conditions_of(query: ChangeQuery, arguments: list[Any]) -> list[str]:
    """Return the conditions on a row of the log, first those of its range. Append their arguments."""
    arguments += query.after, query.until
    first = len(arguments) - 1
    conditions = [f"revision > ${first}::bigint", f"revision <= ${first + 1}::bigint"]

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
        # As an expression, it can't be found in the index by namespace.
        add("namespace || '' = :value" if query.rare else "namespace = :value", query.namespace)
    elif query.namespaced is not None:
        add("namespace <> :value" if query.namespaced else "namespace = :value", "")
    if query.name:
        add("name = :value", query.name)
    if query.revisions:
        add("revision = any (:value::bigint[])", list(query.revisions))
    if query.operations:
        add("operation = any (:value::smallint[])", [int(operation) for operation in query.operations])
    if query.causes:
        add("cause <> 0 and cause = any (:value::bigint[])", list(query.causes))
    conditions += conditions_on_marks(query, arguments)
    if query.reason.isascii() and query.reason:  # the lower case of other letters is another one in Python
        add(_MAY_HAVE_REASON, query.reason.lower())
    for column, text in query.texts:
        if column not in TEXTS:
            raise ValueError(f"{column} is not a column with text conditions")
        add(_text_condition(COLUMNS.get(column, (column,)), text), text.value)
    return conditions


# An annotation is part of the object, whose text is cheaper to search than to parse; encrypted, it says nothing.
_MAY_HAVE_REASON: Final = f"""(strpos(lower(reason collate "C"), {VALUE}) > 0 or operation < 3 and
    (strpos(object::text, 'kubernetes.io/change-cause') > 0 or kubechronicle.is_encrypted(object)))"""


def conditions_on_marks(query: ChangeQuery, arguments: list[Any]) -> list[str]:
    """Return the conditions on a row by the marks of the query (queries/changes.py); append their arguments."""
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


def reader_of(query: ChangeQuery) -> tuple[Callable[[Any], tuple[Record, Record | None]], Callable[[Any], int]]:
    """Return the functions that return the record of a row and the one it replaced, and the bytes of their objects."""
    if query.brief:
        width, objects, change = BRIEF_WIDTH, [BRIEF_OBJECT], _brief
    else:
        width, objects, change = rows.RECORD_WIDTH + WHO_WIDTH, [rows.OBJECT], _whole
    if not query.with_replaced:
        return lambda row: (change(row), None), rows.object_size(*objects)

    def pair(row: Any) -> tuple[Record, Record | None]:
        return change(row), None if row[width] is None else rows.record(row, width)

    return pair, rows.object_size(*objects, width + rows.OBJECT)


_key: Final = tuple.__new__
"""Make a Key of its three texts, in half of the time that the Key's own function takes."""


def _whole(row: Any) -> Record:
    return rows.record(row, 0, who_of(row, rows.RECORD_WIDTH))


def _brief(row: Any) -> Record:
    revision, resource, namespace, name, previous, operation, body, committed_at, user, verb, uri, audit_id = row[
        :BRIEF_WIDTH
    ]
    return Record(
        revision=revision,
        key=_key(Key, (resource, namespace, name)),
        uid="",
        create_revision=0,
        version=0,
        previous_revision=previous,
        operation=rows.OPERATIONS[operation],
        body=body.encode(),
        committed_at=committed_at,
        who=Who(user=user, verb=verb, request_uri=uri, audit_id=audit_id),
    )


def who_of(row: Any, at: int) -> Who:
    """Return the Who in the WHO_COLUMNS of a row, from column ``at`` on."""
    user, uid, groups, extra, impersonator, verb, uri, agent, address, manager, audit_id, reason, cause = row[
        at : at + WHO_WIDTH
    ]
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
        reason=reason,
        cause=cause,
    )


# -- states (queries/states.py) ----------------------------------------------------------------------------------------

STATE_COLUMNS: Final = "revision, resource, namespace, name, previous_revision, operation, object, user_name"
state_size: Final[Callable[[Any], int]] = rows.object_size(6)

# $1 revisions. One index descent for each; the rows come in the order of the revisions given.
_BEFORE: Final = """
select {columns} from unnest($1::bigint[]) with ordinality wanted (revision, place), lateral (
    select {all} from kubechronicle.log l where l.revision = wanted.revision
    union all
    select {all} from kubechronicle.kept k where k.revision = wanted.revision limit 1) found
order by wanted.place
"""


def state_statement(
    queries: Sequence[ChangeQuery], limit: int, short: Iterable[str], texts: Sequence[str]
) -> tuple[str, list[Any]]:
    """Return the SELECT of at most ``limit`` states of the changes that match a query, and its arguments.

    Cost: an index range for each query, merged in order, so that only the rows returned are read.
    """
    arguments: list[Any] = []
    order = "desc" if queries[0].newest_first else "asc"
    parts = []
    for query in queries:
        conditions = " and ".join(conditions_of(query, arguments))
        parts.append(
            f"(select {STATE_COLUMNS} from {table_of(query, short)} where {conditions} order by revision {order}"
        )
    arguments.append(limit)
    last = f"limit ${len(arguments)}"
    found = " union all ".join(f"{part} {last})" for part in parts)
    columns = _state_columns(texts, arguments)
    return f"select {columns} from ({found}) found order by revision {order} {last}", arguments


def before_statement(revisions: Sequence[int], texts: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the SELECT of the states at these revisions, and its arguments."""
    arguments: list[Any] = [list(revisions)]
    return _BEFORE.format(columns=f"found.{_state_columns(texts, arguments)}", all=STATE_COLUMNS), arguments


def _state_columns(texts: Sequence[str], arguments: list[Any]) -> str:
    """Return the columns, of which the object is null if it is not wanted. Append the texts to the arguments."""
    if not texts:
        return STATE_COLUMNS
    wanted = [f"not starts_with(object::text, '{PLAIN_BODY.decode()}')"]
    for text in texts:
        arguments.append(text)
        wanted.append(f"strpos(object::text, ${len(arguments)}::text) > 0")
    return STATE_COLUMNS.replace("object", f"case when {' or '.join(wanted)} then object end as object")


def state_of(row: Any) -> ObjectState:
    revision, resource, namespace, name, previous, operation, body, user = row
    key = _key(Key, (resource, namespace, name))
    return ObjectState(revision, key, previous, rows.OPERATIONS[operation], body.encode() if body else b"", user)
