"""Questions about history: which changes to find, whoever made them, and the statement that finds them.

A ChangeQuery is a conjunction: every condition that is given must hold. ``matches`` says so of a record (that is what
the log in memory does), ``statement`` in SQL. Conditions on what an object contains are not here: the reader looks at
the records.

    ChangeQuery(resources=("deployments.apps",), namespace="shop", name="web", newest_first=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres.sql import HEAD_COLUMNS, RECORD_COLUMNS, log_table
from kubechronicle.eventlog.records import Operation, Record, Who

WHO_COLUMNS: Final = (
    "user_name, user_uid, user_groups, user_extra, impersonator, verb, request_uri, user_agent, source_address,"
    " field_manager, audit_id"
)
WHO_WIDTH: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What a text must be: ``value`` or not it, or for ``prefix`` begin with it or not."""

    value: str
    equal: bool = True
    prefix: bool = False

    def holds(self, text: str) -> bool:
        return (text.startswith(self.value) if self.prefix else text == self.value) is self.equal


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuery:
    """Changes with ``after`` < revision <= ``until``. ``namespaced``: of objects in namespaces, or of those in none;
    None: of both. ``namespace`` "": of all. ``resources`` empty: of all. ``texts``: conditions by column, the names
    being those of TEXTS."""

    after: int = 0
    until: int = 2**63 - 1
    newest_first: bool = True
    namespaced: bool | None = None
    namespace: str = ""
    name: str = ""
    resources: tuple[str, ...] = ()
    not_resources: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    texts: tuple[tuple[str, Text], ...] = ()

    def matches(self, record: Record) -> bool:
        key = record.key
        return (
            self.after < record.revision <= self.until
            and (self.namespaced is None or bool(key.namespace) is self.namespaced)
            and (not self.namespace or key.namespace == self.namespace)
            and (not self.name or key.name == self.name)
            and (not self.resources or key.resource in self.resources)
            and key.resource not in self.not_resources
            and (not self.operations or record.operation in self.operations)
            and all(text.holds(TEXTS[column](record)) for column, text in self.texts)
        )


def _of_who(field: str) -> Callable[[Record], str]:
    return lambda record: str(getattr(record.who, field)) if record.who is not None else ""


TEXTS: Final[dict[str, Callable[[Record], str]]] = {
    "namespace": lambda record: record.key.namespace,
    "name": lambda record: record.key.name,
    "uid": lambda record: record.uid,
    "user_name": _of_who("user"),
    "impersonator": _of_who("impersonator"),
    "verb": _of_who("verb"),
    "user_agent": _of_who("user_agent"),
    "source_address": _of_who("source_address"),
    "field_manager": _of_who("field_manager"),
    "audit_id": _of_who("audit_id"),
}
"""The columns texts may be asked of, and how a record tells them."""


def statement(query: ChangeQuery, limit: int, short: Iterable[str]) -> tuple[str, list[Any]]:
    """The SELECT of at most ``limit`` changes with what each replaced, and its arguments. Its rows are HEAD_COLUMNS,
    the record, WHO_COLUMNS, and the record before; one row whose other columns are null if nothing was found.

    It costs one index range: that of the key, of the resource, of the namespace or of the user, as far as the query
    names them, else the newest (or oldest) rows there are."""
    conditions, arguments = conditions_of(query)
    arguments.append(limit)
    order = "desc" if query.newest_first else "asc"
    found = f"""
select {HEAD_COLUMNS}, r.*, p.* from kubechronicle.head h left join lateral (
    select {RECORD_COLUMNS}, {WHO_COLUMNS} from {table_of(query, short)}
    where {" and ".join(conditions)} order by revision {order} limit ${len(arguments)}) r on true
left join lateral (
    select {RECORD_COLUMNS} from kubechronicle.log where revision = r.previous_revision
    union all
    select {RECORD_COLUMNS} from kubechronicle.kept where revision = r.previous_revision limit 1) p
    on r.previous_revision > 0
order by r.revision {order}
"""
    return found, arguments


def table_of(query: ChangeQuery, short: Iterable[str]) -> str:
    """The log, or the part of it that has all resources asked for."""
    classes = {resource in set(short) for resource in query.resources}
    return "kubechronicle.log" if len(classes) != 1 else log_table("short" if True in classes else "long")


def conditions_of(query: ChangeQuery) -> tuple[list[str], list[Any]]:
    """What must hold of a row of the log, and the arguments that are named there."""
    arguments: list[Any] = [query.after, query.until]
    conditions = ["revision > $1::bigint", "revision <= $2::bigint"]

    def add(condition: str, value: Any) -> None:
        arguments.append(value)
        conditions.append(condition.replace("?", f"${len(arguments)}"))

    if len(query.resources) == 1:
        add("resource = ?", query.resources[0])
    elif query.resources:
        add("resource = any (?::text[])", list(query.resources))
    if query.not_resources:
        add("resource <> all (?::text[])", list(query.not_resources))
    if query.namespace:
        add("namespace = ?", query.namespace)
    elif query.namespaced is not None:
        add("namespace <> ?" if query.namespaced else "namespace = ?", "")
    if query.name:
        add("name = ?", query.name)
    if query.operations:
        add("operation = any (?::smallint[])", [int(operation) for operation in query.operations])
    for column, text in query.texts:
        if column not in TEXTS:
            raise ValueError(f"{column} is no column texts are asked of")
        if text.prefix:
            add(f"starts_with({column}, ?) = {str(text.equal).lower()}", text.value)
        else:
            add(f"{column} {'=' if text.equal else '<>'} ?", text.value)
    return conditions, arguments


def who_of(row: Any, at: int) -> Who:
    """From the WHO_COLUMNS of a row, beginning at column ``at``."""
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
