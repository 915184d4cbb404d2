"""Helpers for tests and benchmarks: ready-made changes, and a log with views, tail and appender.

The server does not import this file. For the log in memory and its faults, see memory/.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson
import trio

from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.views import Describe, Views

TEST_USER = Who(user="tester")


def describe_simply(resource: str, decoded: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """A ``Describe`` that returns labels and ``spec.nodeName``."""
    node = decoded.get("spec", {}).get("nodeName", "")
    return decoded["metadata"].get("labels", {}), {"spec.nodeName": node} if node else {}


def put(key: Key, *, expected: int, node: str = "", labels: Mapping[str, str] | None = None, text: str = "") -> Change:
    """Create (``expected`` 0) or update an object of no particular kind."""
    metadata = {"name": key.name, "namespace": key.namespace, "labels": dict(labels or {})}
    decoded = {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "spec": {"nodeName": node}, "text": text}
    operation = Operation.UPDATE if expected else Operation.CREATE
    body = orjson.dumps(decoded)
    return Change(key=key, uid=f"uid-of-{key.name}", expected=expected, operation=operation, body=body, decoded=decoded)


def delete(key: Key, *, expected: int, node: str = "") -> Change:
    """Delete an object made by ``put``."""
    last = put(key, expected=expected, node=node)
    return Change(key=key, uid=last.uid, expected=expected, operation=Operation.DELETE, body=last.body)


def transaction(*changes: Change) -> Transaction:
    return Transaction(changes=changes, who=TEST_USER)


def commit(store: MemoryStore, *changes: Change) -> tuple[Record, ...]:
    """Commit one transaction of these changes at once, as another replica would."""
    outcome = store.commit(Batch(id=uuid4(), transactions=(transaction(*changes),))).outcomes[0]
    assert not isinstance(outcome, Rejected), outcome
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A log with its views, tail, appender and consistent reads."""

    log: RevisionLog
    views: Views
    tail: Tail
    appender: Appender
    reads: ConsistentRead
    nursery: trio.Nursery


@asynccontextmanager
async def open_stack(log: RevisionLog, *, describe: Describe = describe_simply) -> AsyncIterator[Stack]:
    """Run tail and appender, loaded, within the block. ``nursery`` is for the test's own tasks."""
    views = Views(describe)
    tail = Tail(log, views)
    appender = Appender(log, tail)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        await nursery.start(lambda *, task_status: appender.run(task_status=task_status))
        yield Stack(
            log=log, views=views, tail=tail, appender=appender, reads=ConsistentRead(log, tail), nursery=nursery
        )
        nursery.cancel_scope.cancel()
