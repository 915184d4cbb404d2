"""Finding changes: the same answers from both logs, in every direction and under every condition."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubechronicle.eventlog.changes import TEXTS, ChangeQuery, Text
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who

Opener = Callable[[], Awaitable[Any]]

USERS = (
    Who(user="alice", uid="u1", groups=("dev", 'odd "group"'), verb="patch", extra={"scopes": ("a", "b")},
        user_agent="kubectl/v1.36.0 (linux)", source_address="10.0.0.1", field_manager="kubectl-edit", audit_id="a-1",
        request_uri="/api/v1/x"),
    Who(user="ci", verb="update", user_agent="helm/4", impersonator="admin", field_manager="helm"),
)  # fmt: skip
RESOURCES = ("configmaps", "deployments.apps", "events", "nodes")


async def filled(log: Any) -> None:
    """Some hundred changes of some objects by two users, drawn the same each time."""
    draw = random.Random(7)
    there: dict[Key, int] = {}
    for number in range(1, 201):
        resource = draw.choice(RESOURCES)
        namespace = "" if resource == "nodes" else draw.choice(("shop", "shop-2"))
        key = Key(resource, namespace, draw.choice("abc"))
        expected = there.get(key, 0)
        operation = Operation.CREATE if not expected else draw.choice((Operation.UPDATE, Operation.DELETE))
        body = f'{{"apiVersion":"v1","kind":"X","metadata":{{"name":"{key.name}"}},"n":{number}}}'.encode()
        change = Change(key=key, uid=f"uid-{key.name}", expected=expected, operation=operation, body=body)
        who = USERS[draw.random() < 0.3]
        await log.append(Batch(id=uuid.uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        if operation is Operation.DELETE:
            del there[key]
        else:
            there[key] = number


QUERIES = (
    ChangeQuery(),
    ChangeQuery(newest_first=False),
    ChangeQuery(after=50, until=90),
    ChangeQuery(namespaced=True),
    ChangeQuery(namespaced=False),
    ChangeQuery(namespace="shop"),
    ChangeQuery(namespace="shop", name="a", resources=("deployments.apps",), newest_first=False),
    ChangeQuery(resources=("events",)),
    ChangeQuery(resources=("events", "nodes")),
    ChangeQuery(not_resources=("events", "configmaps")),
    ChangeQuery(operations=(Operation.DELETE,)),
    ChangeQuery(operations=(Operation.CREATE, Operation.UPDATE), name="b"),
    ChangeQuery(texts=(("user_name", Text(value="ci")),)),
    ChangeQuery(texts=(("user_name", Text(value="ci", equal=False)), ("verb", Text(value="patch")))),
    ChangeQuery(texts=(("user_agent", Text(value="kubectl/", prefix=True)),)),
    ChangeQuery(texts=(("user_agent", Text(value="kubectl/", prefix=True, equal=False)),)),
    ChangeQuery(texts=(("namespace", Text(value="shop", equal=False)),)),
    *(ChangeQuery(texts=((column, Text(value="helm")),)) for column in TEXTS),
    ChangeQuery(resources=("nothing.there",)),
)


def told(found: list[tuple[Record, Record | None]]) -> list[Any]:
    return [
        (one.revision, one.key, one.uid, one.operation, one.body, one.who, before and (before.revision, before.body))
        for one, before in found
    ]


@pytest.mark.parametrize("position", range(len(QUERIES)))
async def test_both_logs_find_the_same(replicas: Opener, position: int) -> None:
    from kubechronicle.eventlog.memory import MemoryLog

    query = QUERIES[position]
    log, memory = await replicas(), MemoryLog()
    await filled(memory)
    await filled(log)
    everything = await memory.changes(ChangeQuery(newest_first=False), limit=1000)
    assert len(everything) == 200
    assert all((before.revision if before else 0) == one.previous_revision for one, before in everything)
    expected = [pair for pair in everything if query.matches(pair[0])]
    if query.newest_first:
        expected.reverse()
    assert told(await log.changes(query, limit=1000)) == told(expected)
    assert told(await memory.changes(query, limit=1000)) == told(expected)
    assert told(await log.changes(query, limit=7)) == told(expected[:7])
