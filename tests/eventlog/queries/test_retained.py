"""No search for changes, and no count of them, finds a change below its resource's mark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from log_history import Opener, filled

from kubechronicle.eventlog.queries.changes import ChangeQuery, Text, within_history
from kubechronicle.eventlog.queries.density import BY, DensityQuery, value_of
from kubechronicle.eventlog.queries.groups import GroupQuery
from kubechronicle.eventlog.records import Head

Marks = tuple[int, dict[str, int]]
MARKS: Final[tuple[Marks, ...]] = (
    (60, {"events": 120}),  # events are kept for a shorter time than all others
    (120, {"configmaps": 20, "events": 60}),  # configmaps are kept for ever
    (40, {"configmaps": 90, "events": 140, "nodes": 90}),
    (100, {}),
)
QUERIES = (
    ChangeQuery(),
    ChangeQuery(newest_first=False),
    ChangeQuery(after=50, until=130),
    ChangeQuery(resources=("events",)),
    ChangeQuery(resources=("events", "nodes")),
    ChangeQuery(not_resources=("configmaps",)),
    ChangeQuery(not_resources=("events", "leases.coordination.k8s.io")),
    ChangeQuery(namespace="shop", texts=(("user_name", Text(value="ci")),)),
)


async def compacted(replicas: Opener, run_sql: Any, marks: Marks) -> tuple[Any, Any]:
    """Return both logs with these marks; every row is still stored."""
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    log, memory = await replicas(), MemoryLog()
    rest, of = marks
    for each in (log, memory):
        await filled(each)
    memory.store.compacted, memory.store.compacted_of = rest, dict(of)
    text = ", ".join(f'"{name}": {mark}' for name, mark in of.items())
    run_sql(f"select kubechronicle.move_marks({rest}, '{{{text}}}')")
    return log, memory


@pytest.mark.parametrize("marks", MARKS)
async def test_searches_and_counts_begin_at_the_marks(replicas: Opener, run_sql: Any, marks: Marks) -> None:
    log, memory = await compacted(replicas, run_sql, marks)
    rest, of = marks
    rows = list(memory.store.rows(after=0))
    edges = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
    assert len(rows) == 200
    for query in QUERIES:
        whole = [
            record
            for record, _ in memory.store.changes(replace(query, newest_first=False))
            if record.revision > of.get(record.key.resource, rest)
        ]
        found = [record.revision for record in whole]
        expected = found[::-1] if query.newest_first else found
        for each in (log, memory) if memory.store.head().compacted_of == of else (log,):
            changes = await each.changes(query, limit=1000)
            assert [record.revision for record, _ in changes] == expected
            groups = await each.groups(GroupQuery(changes=query, by=("resource",)))
            assert sum(group.changes for group in groups) == len(whole)
            assert min((group.first for group in groups), default=0) == min(found, default=0)
        for by in BY:
            wanted = Counter(value_of(record, by) for record in whole)
            counts = await log.density(DensityQuery(changes=query, edges=edges, by=by))
            assert {count.value: count.changes for count in counts} == wanted


def test_a_query_has_as_few_conditions_on_marks_as_possible() -> None:
    head = Head(revision=1000, compacted=300, compacted_of={"events": 900, "pods": 700})
    found = within_history(ChangeQuery(), head)
    assert (found.after, found.floors, found.rest) == (300, ((900, ("events",)), (700, ("pods",))), 0)
    assert within_history(ChangeQuery(resources=("pods",)), head) == ChangeQuery(resources=("pods",), after=700)
    found = within_history(ChangeQuery(after=800, not_resources=("events",)), head)
    assert found == ChangeQuery(after=800, not_resources=("events",))
    head = replace(head, compacted_of={"secrets": 0})
    found = within_history(ChangeQuery(), head)
    assert (found.after, found.floors, found.rest, found.named) == (0, (), 300, ("secrets",))


def test_marks_leave_queries_without_history_alone() -> None:
    head = Head(revision=1000, compacted=0)
    for query in QUERIES:
        assert within_history(query, head) == query
