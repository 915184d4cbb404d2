"""A log with some history, for tests of queries of changes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who

Opener = Callable[[], Awaitable[Any]]

USERS = (
    Who(
        user="alice",
        uid="u1",
        groups=("dev", 'odd "group"'),
        verb="patch",
        extra={"scopes": ("a", "b")},
        user_agent="kubectl/v1.36.0 (linux)",
        source_address="10.0.0.1",
        field_manager="kubectl-edit",
        audit_id="a-1",
        request_uri="/api/v1/x",
    ),
    Who(
        user="ci",
        verb="update",
        user_agent="helm/4",
        impersonator="admin",
        field_manager="helm",
        request_uri="/api/v1/nodes/one/status?fieldManager=helm",
    ),
)
RESOURCES = ("configmaps", "deployments.apps", "events", "nodes")


async def filled(log: Any) -> None:
    """Append 200 changes of some objects by two users, the same at each call."""
    draw = random.Random(7)
    live: dict[Key, int] = {}
    for number in range(1, 201):
        resource = draw.choice(RESOURCES)
        namespace = "" if resource == "nodes" else draw.choice(("shop", "shop-2"))
        key = Key(resource, namespace, draw.choice("abc"))
        expected = live.get(key, 0)
        operation = Operation.CREATE if not expected else draw.choice((Operation.UPDATE, Operation.DELETE))
        body = f'{{"apiVersion":"v1","kind":"X","metadata":{{"name":"{key.name}"}},"n":{number}}}'.encode()
        change = Change(key=key, uid=f"uid-{key.name}", expected=expected, operation=operation, body=body)
        who = USERS[draw.random() < 0.3]
        await log.append(Batch(id=uuid.uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        if operation is Operation.DELETE:
            del live[key]
        else:
            live[key] = number
