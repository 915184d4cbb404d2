"""ChangeQuery: equal results from both logs, in both directions and under every condition."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from log_history import Opener, filled

from kubechronicle.eventlog.queries.changes import TEXTS, ChangeQuery, Text
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Transaction, Who

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
    *(
        ChangeQuery(texts=((column, Text(value=value, equal=equal, prefix=prefix)),))
        for column, value in (("actor", "ci"), ("subresource", "s"))
        for equal in (True, False)
        for prefix in (True, False)
    ),
    ChangeQuery(revisions=(7, 30, 31, 200, 900), until=150),
    ChangeQuery(namespace="shop", texts=(("user_name", Text(value="ci")),), rare=True),
    ChangeQuery(resources=("nothing.there",)),
    ChangeQuery(namespace="shop\0"),
    ChangeQuery(name="\0"),
    *(
        ChangeQuery(texts=(("user_name", Text(value="ci\0", equal=equal, prefix=prefix)),), namespace="shop")
        for equal in (True, False)
        for prefix in (True, False)
    ),
)


def summary(pairs: list[tuple[Record, Record | None]]) -> list[Any]:
    return [
        (one.revision, one.key, one.uid, one.operation, one.body, one.who, before and (before.revision, before.body))
        for one, before in pairs
    ]


async def test_both_logs_return_the_same_changes(replicas: Opener) -> None:
    """One test for all queries: to fill the log costs a hundred times as much as to ask it."""
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    log, memory = await replicas(), MemoryLog()
    await filled(memory)
    await filled(log)
    everything = await memory.changes(ChangeQuery(newest_first=False), limit=1000)
    assert len(everything) == 200
    assert all((before.revision if before else 0) == one.previous_revision for one, before in everything)
    for query in QUERIES:
        expected = [pair for pair in everything if query.matches(pair[0])]
        if query.newest_first:
            expected.reverse()
        assert summary(await log.changes(query, limit=1000)) == summary(expected), query
        assert summary(await memory.changes(query, limit=1000)) == summary(expected), query
        assert summary(await log.changes(query, limit=7)) == summary(expected[:7]), query


async def test_consequences_are_found_by_their_cause(replicas: Opener) -> None:
    log = await replicas()
    for name, cause in (("a", 0), ("b", 1), ("c", 2), ("d", 1)):
        key = Key("configmaps", "ns", name)
        change = Change(key=key, uid=name, expected=0, operation=Operation.CREATE, body=b'{"metadata":{"name":"x"}}')
        transaction = Transaction(changes=(change,), who=Who(user="u", cause=cause))
        await log.append(Batch(id=uuid4(), transactions=(transaction,)))
    found = await log.changes(ChangeQuery(causes=(1, 7), newest_first=False), limit=10)
    assert [(record.key.name, record.who.cause if record.who else 0) for record, _ in found] == [("b", 1), ("d", 1)]


async def test_postgres_leaves_out_changes_that_cannot_have_the_reason(replicas: Opener) -> None:
    """An object with a change-cause may have it: the reader decides that. So may an encrypted one."""
    log = await replicas()
    bodies = {
        "asked": ("Ticket 42", "{}"),
        "other": ("ticket 4", "{}"),
        "caused": ("", '{"annotations":{"kubernetes.io/change-cause":"x"}}'),
        "encrypted": ("", ""),
        "none": ("", "{}"),
    }
    for name, (reason, metadata) in bodies.items():
        body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}' if metadata else '{"encrypted":"k"}'
        made = Change(
            key=Key("configmaps", "a", name), uid=name, expected=0, operation=Operation.CREATE, body=body.encode()
        )
        who = Who(user="u", reason=reason)
        await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(made,), who=who),)))
    found = await log.changes(ChangeQuery(reason="TICKET 42", newest_first=False), limit=10)
    assert [record.key.name for record, _ in found] == ["asked", "caused", "encrypted"]
