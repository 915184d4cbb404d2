"""DensityQuery: equal counts from both logs, by every column."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from log_history import Opener, filled

from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.queries.density import BY, Count, DensityQuery, folded, value_of
from kubechronicle.eventlog.records import Operation

QUERIES = (
    ChangeQuery(),
    ChangeQuery(after=50, until=90),
    ChangeQuery(namespaced=True),
    ChangeQuery(namespaced=False),
    ChangeQuery(namespace="shop"),
    ChangeQuery(resources=("events",)),
    ChangeQuery(resources=("events", "nodes"), name="a"),
    ChangeQuery(not_resources=("configmaps",)),
    ChangeQuery(not_resources=("events",)),
    ChangeQuery(not_resources=("events", "configmaps", "leases.coordination.k8s.io")),
    ChangeQuery(not_resources=("events", "nodes"), after=10, until=120, namespaced=True),
    ChangeQuery(not_resources=("events",), operations=(Operation.DELETE, Operation.UPDATE)),
    ChangeQuery(texts=(("user_name", Text(value="ci", equal=False)), ("verb", Text(value="patch")))),
    ChangeQuery(texts=(("user_agent", Text(value="helm", prefix=True)),)),
    ChangeQuery(after=150, until=150),
)


async def test_both_logs_return_the_same_counts(replicas: Opener) -> None:
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    places = (20, 20, 45, 46, 90, 130, 180)
    logs = (MemoryLog(), await replicas())
    for log in logs:
        await filled(log)
    edges = [tuple([(await log.moment_of(place)).time for place in places]) for log in logs]
    everything = [record for record, _ in await logs[0].changes(ChangeQuery(newest_first=False), limit=1000)]
    for changes, by, most in itertools.product(QUERIES, BY, (100, 2)):
        expected: Counter[tuple[int, str]] = Counter()
        for record in everything:
            bucket = sum(record.revision >= place for place in places) - 1
            if changes.matches(record) and 0 <= bucket < len(places) - 1:
                expected[bucket, value_of(record, by)] += 1
        counts = folded((Count(*key, number) for key, number in expected.items()), most)
        for log, log_edges in zip(logs, edges, strict=True):
            assert await log.density(DensityQuery(changes=changes, edges=log_edges, by=by, most=most)) == counts


async def test_a_query_may_count_a_bounded_number_of_changes(replicas: Opener) -> None:
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    now = datetime.now(UTC)
    edges = (now - timedelta(hours=1), now + timedelta(hours=1))
    for log in (await replicas(), MemoryLog()):
        assert await log.density(DensityQuery(changes=ChangeQuery(), edges=edges)) == []
        await filled(log)
        for changes, limit in ((ChangeQuery(), 200), (ChangeQuery(after=40, until=60), 20)):
            counts = await log.density(DensityQuery(changes=changes, edges=edges, limit=limit))
            assert sum(count.changes for count in counts) == limit
            with pytest.raises(TooMany) as caught:
                await log.density(DensityQuery(changes=changes, edges=edges, limit=limit - 1))
            assert caught.value.changes == limit
        later = (edges[1], edges[1] + timedelta(hours=1))
        assert await log.density(DensityQuery(changes=ChangeQuery(), edges=later)) == []


def test_rare_values_are_counted_together() -> None:
    counts = [Count(0, "a", 1), Count(0, "b", 5), Count(1, "c", 1), Count(2, "a", 1), Count(2, "", 2)]
    others = [Count(0, None, 1), Count(1, None, 1), Count(2, None, 1)]
    assert folded(counts, 2) == [Count(0, "b", 5), *others[:2], Count(2, "", 2), others[2]]
    assert folded(counts, 9) == [*counts[:3], *counts[:2:-1]]
    assert folded([Count(0, "b", 1), Count(0, "a", 1)], 1) == [Count(0, "a", 1), Count(0, None, 1)]
