"""Ready-made changes and an extra connection, for tests of the log on Postgres."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who


def create(name: str, *, body: bytes | None = None, resource: str = "pods") -> Change:
    text = body or b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"},"spec":{"replicas":3}}' % name.encode()
    return Change(key=Key(resource, "ns", name), uid="u", expected=0, operation=Operation.CREATE, body=text)


def update(record: Record, *, delete: bool = False) -> Change:
    operation = Operation.DELETE if delete else Operation.UPDATE
    return Change(key=record.key, uid="u", expected=record.revision, operation=operation, body=record.body)


def batch(*changes: Change, who: Who | None = None) -> Batch:
    who = who or Who(user="alice")
    return Batch(id=uuid.uuid4(), transactions=tuple(Transaction(changes=(change,), who=who) for change in changes))


async def put(log: Any, change: Change) -> Record:
    (outcome,) = (await log.append(batch(change))).outcomes
    assert not isinstance(outcome, Rejected), outcome
    return outcome[0]  # type: ignore[no-any-return]


@asynccontextmanager
async def open_session_of(log: Any) -> AsyncIterator[Any]:
    """Open one more connection to the log's database, to stall, kill or inspect others."""
    async with log._maintenance() as session:
        yield session
