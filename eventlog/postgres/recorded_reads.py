"""Recorded reads in Postgres (queries/reads.py): statements, rows, and the ReadLog over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres.session import Row, SessionPool
from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording

_RECORD: Final = "select kubechronicle.record_reads($1::json, $2::json)"
_RETAIN: Final = "select kubechronicle.retain_reads($1)"
_RECORDINGS: Final = """
select id, server, extract(epoch from since)::float8 as since, extract(epoch from until)::float8 as until, lost, clean,
    policy::text as policy
from kubechronicle.read_recordings order by since desc limit $1
"""
_FIELDS: Final = ReadRecord._fields
_COLUMNS: Final = ", ".join(_FIELDS)


class RecordedReadRows:
    """The recorded reads, over a pool of connections."""

    def __init__(self, pool: SessionPool) -> None:
        self._pool = pool

    async def record(self, reads: Sequence[ReadRecord], recording: Recording) -> None:
        await self._pool.fetch(_RECORD, *arguments(reads, recording))

    async def retain(self, days: int) -> list[str]:
        return list((await self._pool.fetch(_RETAIN, days))[0][0])

    async def list(self, query: ReadQuery, *, limit: int) -> Sequence[ReadRecord]:
        statement, values = select(query, limit)
        return [read_of(row) for row in await self._pool.fetch(statement, *values)]

    async def recordings(self, *, limit: int) -> Sequence[Recording]:
        return [recording_of(row) for row in await self._pool.fetch(_RECORDINGS, limit)]


def arguments(reads: Sequence[ReadRecord], recording: Recording) -> tuple[str, str]:
    """Return the arguments of _RECORD."""
    return _json([read._asdict() for read in reads]), _json(recording._asdict())


def _json(value: Any) -> str:
    # Postgres' json has no \u0000 in a text.
    return orjson.dumps(value).decode().replace("\\u0000", "\\ufffd")


def select(query: ReadQuery, limit: int) -> tuple[str, list[Any]]:
    """Return the SELECT of at most ``limit`` reads, newest first, and its arguments. Cost: one index range for each
    resource and name that the query names, or of the user, or of the time."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, value: Any) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    if query.namespaced is not None:
        conditions.append("namespace <> ''" if query.namespaced else "namespace = ''")
    if query.namespace:
        add("namespace = {}", query.namespace)
    if query.user:
        add("user_name = {}", query.user)
    if query.verbs:
        add("verb = any({}::text[])", list(query.verbs))
    if query.since is not None:
        add("at >= {}", query.since)
    if query.until is not None:
        add("at <= {}", query.until)
    if query.before is not None:
        values.extend(query.before)
        conditions.append(f"(at, id) < (${len(values) - 1}, ${len(values)})")
    values.append(limit)
    last = f"order by at desc, id desc limit ${len(values)}"
    keys = [(resource, name) for resource in query.resources for name in ((query.name, "") if query.name else (None,))]
    if not keys:
        where = f"where {' and '.join(conditions)}" if conditions else ""
        return f"select {_COLUMNS} from kubechronicle.reads {where} {last}", values
    parts = []
    for resource, name in keys:
        terms = [*conditions]
        values.append(resource)
        terms.append(f"resource = ${len(values)}")
        if name is not None:
            values.append(name)
            terms.append(f"name = ${len(values)}")
        parts.append(f"(select * from kubechronicle.reads where {' and '.join(terms)} {last})")
    return f"select {_COLUMNS} from ({' union all '.join(parts)}) found {last}", values


def read_of(row: Row) -> ReadRecord:
    values = {name: row[name] for name in _FIELDS if name != "at"}
    values["user_groups"] = tuple(values["user_groups"])
    return ReadRecord(at=row["at"].timestamp(), **values)


def recording_of(row: Row) -> Recording:
    return Recording(
        id=row["id"],
        server=row["server"],
        since=row["since"],
        until=row["until"],
        lost=row["lost"],
        clean=row["clean"],
        policy=orjson.loads(row["policy"]),
    )
