"""GroupQuery: equal groups from both logs, by every column, and a bounded number of rows."""

from __future__ import annotations

from collections import defaultdict

import pytest
from log_history import Opener, filled

from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.postgres.change_sql import COLUMNS as COLUMNS_OF
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text, subresource_of
from kubechronicle.eventlog.queries.groups import BY, ChangeGroup, GroupQuery, value_of
from kubechronicle.eventlog.records import Operation

QUERIES = (
    ChangeQuery(),
    ChangeQuery(after=50, until=90),
    ChangeQuery(namespaced=False),
    ChangeQuery(namespace="shop", resources=("events", "nodes")),
    ChangeQuery(not_resources=("events",), operations=(Operation.DELETE,)),
    ChangeQuery(texts=(("actor", Text(value="ci")), ("subresource", Text(value="status", equal=False)))),
    ChangeQuery(after=150, until=150),
    ChangeQuery(resources=("nothing.there",)),
)
COLUMNS = ((), ("resource",), ("user_name", "impersonator"), ("resource", "namespace", "name", "operation"), BY)


async def test_both_logs_return_the_same_groups(replicas: Opener) -> None:
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    logs = (MemoryLog(), await replicas())
    for log in logs:
        await filled(log)
    everything = [record for record, _ in await logs[0].changes(ChangeQuery(newest_first=False), limit=1000)]
    for changes in QUERIES:
        for by in COLUMNS:
            found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
            for record in filter(changes.matches, everything):
                found[tuple(value_of(record, column) for column in by)].append(record.revision)
            groups = [ChangeGroup(values, len(numbers), numbers[0], numbers[-1]) for values, numbers in found.items()]
            groups.sort(key=lambda group: (-group.changes, group.values))
            for log in logs:
                assert await log.groups(GroupQuery(changes=changes, by=by)) == groups
                assert await log.groups(GroupQuery(changes=changes, by=by, most=2)) == groups[:2]


async def test_a_query_groups_a_bounded_number_of_changes(replicas: Opener) -> None:
    from kubechronicle.eventlog.memory.memory_log import MemoryLog

    for log in (await replicas(), MemoryLog()):
        await filled(log)
        assert [group.changes for group in await log.groups(GroupQuery(changes=ChangeQuery(), limit=200))] == [200]
        with pytest.raises(TooMany):
            await log.groups(GroupQuery(changes=ChangeQuery(), limit=199))
        one = ChangeQuery(resources=("events",), texts=(("name", Text(value="a")),))
        assert len(await log.groups(GroupQuery(changes=one, limit=1))) <= 1


URIS = {
    "/api/v1/namespaces/shop/pods/eviction/eviction": "eviction",
    "/api/v1/namespaces/shop/pods/eviction": "",
    "/api/v1/nodes/a": "",
    "/api/v1/namespaces/shop/pods/a/eviction": "eviction",
    "/api/v1/namespaces/shop/pods/a/eviction?dryRun=All": "eviction",
    "/apis/apps/v1/namespaces/shop/deployments/web/scale": "scale",
    "/api/v1/nodes/one/status?fieldManager=kubelet": "status",
    "/api/v1/namespaces/shop/status": "status",
    "/api/v1/namespaces/shop/finalize": "finalize",
    "/api/v1/namespaces/shop/pods": "",
    "/api/v1/namespaces/shop/pods/status": "",
    "/api/v1/namespaces/shop": "",
    "/api/v1/namespaces?fieldManager=a/b/status": "",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/status": "",
    "": "",
}


async def test_the_subresource_of_a_request(replicas: Opener) -> None:
    """Python and Postgres read the same subresource from a URI."""
    pool = (await replicas())._pool
    [expression] = COLUMNS_OF["subresource"]
    for uri, expected in URIS.items():
        assert subresource_of(uri) == expected
        named = "eviction" if "pods/eviction" in uri else "one"
        for name in ("a", "shop", "web", "", named):
            found = "(select $1::text as request_uri, $2::text as name) found"
            [row] = await pool.fetch(f"select {expression} from {found}", uri, name)
            assert row[0] == expected, (uri, name)
