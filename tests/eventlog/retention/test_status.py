"""The status of history: counted in a small log, estimated in a large one, as text and as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import trio

from kubechronicle.eventlog.retention import status as module
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, OTHERS, RetentionPolicy
from kubechronicle.eventlog.retention.status import history_status
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]

NOW = datetime(2026, 3, 20, tzinfo=UTC)
# 4000 changes over 20 days, one in ten of an event, the others of pods; partitions of 1000 revisions
FILL = """
    alter table kubechronicle.log_long detach partition kubechronicle.log_long_1;
    alter table kubechronicle.log_short detach partition kubechronicle.log_short_1;
    drop table kubechronicle.log_long_1, kubechronicle.log_short_1;
    update kubechronicle.retention_classes set span = 1000, partitioned_until = 1;
    select kubechronicle.make_partitions_until(4500);
    insert into kubechronicle.log select
        n, n, 1, 0, timestamptz '2026-03-20 00:00+00' - (4000 - n) * interval '432 s', 1,
        case when n % 10 = 0 then 'short' else 'long' end, case when n % 10 = 0 then 'events' else 'pods' end,
        'x', 'o' || n, 'u', '', '', '{}', null, '', '', '', '', '', '', '', '', '',
        json_build_object('x', repeat('y', 500))
    from generate_series(1, 4000) n;
    update kubechronicle.head set revision = 4000, committed_at = '2026-03-20 00:00+00',
        compacted_of = '{"events": 3500}'
"""


@pytest.fixture
async def log(replicas: Opener, run_sql: RunSql) -> Any:
    run_sql(FILL)
    return await replicas()


async def test_the_status_of_a_small_log(log: Any) -> None:
    async with log._maintenance() as session:
        found = await history_status(session, DEFAULT_POLICIES, now=NOW)
    assert (found.revision, found.committed_at, found.compacted, found.exact) == (4000, NOW, 0, True)
    pods, events = found.resources
    assert (pods.resource, pods.changes, pods.policy.resource, pods.compacted) == ("pods", 3600, OTHERS, 0)
    assert (events.resource, events.changes, events.policy.resource) == ("events", 400, "events")
    assert events.compacted == 3500
    assert pods.oldest == (1, NOW - timedelta(seconds=432 * 3999))
    assert events.oldest == (3510, NOW - timedelta(seconds=432 * 490))
    assert events.newest == (4000, NOW)
    assert pods.changes_per_day == pytest.approx(180, abs=1)
    assert pods.bytes + events.bytes == pytest.approx(found.log_bytes, abs=2)
    assert pods.bytes_per_day == pytest.approx(pods.bytes / 20, rel=0.02)
    droppable_at = {partition.name: partition.droppable_at for partition in found.partitions}
    assert droppable_at["log_short_1"] == NOW - timedelta(seconds=432 * 3000) + timedelta(days=1)
    assert droppable_at["log_long_1001"] == NOW - timedelta(seconds=432 * 2000) + timedelta(days=365)
    assert droppable_at["log_long_4001"] is None
    assert not any(partition.for_ever for partition in found.partitions)


async def test_a_resource_without_maximum_age_keeps_its_partitions(log: Any) -> None:
    policies = (*DEFAULT_POLICIES, RetentionPolicy(resource="secrets"))
    async with log._maintenance() as session:
        found = await history_status(session, policies, now=NOW)
    for partition in found.partitions:
        assert partition.for_ever is (partition.retention_class == "long")
        assert (partition.droppable_at is None) is (partition.for_ever or partition.first > 4000)


async def test_a_large_log_is_sampled(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_PAGES", 100)
    async with log._maintenance() as session:
        found = await history_status(session, DEFAULT_POLICIES, now=NOW)
    assert not found.exact
    pods, events = found.resources
    assert pods.changes == pytest.approx(3600, rel=0.4)
    assert events.changes == pytest.approx(400, rel=0.7)
    assert pods.oldest is not None  # from an index, so exact
    assert pods.oldest[0] == 1


async def test_an_empty_log(replicas: Opener) -> None:
    async with (await replicas())._maintenance() as session:
        found = await history_status(session, DEFAULT_POLICIES)
    assert (found.revision, found.resources) == (0, ())


async def test_the_command(log: Any, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["history", "status", "--database-url", database, "--history-retention", "pods=400d,100000"]
    assert await trio.to_thread.run_sync(cli.main, command) == 0
    output = capsys.readouterr().out
    assert "newest  revision 4000, 2026-03-20T00:00:00Z\noldest  revision 1, 2026-02-28T00:07:12Z\n" in output
    assert "RESOURCE   CHANGES   SIZE" in output
    assert "400d, 100000 changes" in output
    assert "not full yet" in output
    assert await trio.to_thread.run_sync(cli.main, [*command, "-o", "json"]) == 0
    answer = orjson.loads(capsys.readouterr().out)
    assert answer["revision"] == 4000
    pods = answer["resources"][0]
    assert {name: pods[name] for name in ("resource", "changes", "maxAge", "maxChanges", "oldest")} == {
        "resource": "pods",
        "changes": 3600,
        "maxAge": "400d",
        "maxChanges": 100000,
        "oldest": {"revision": 1, "time": "2026-02-28T00:07:12Z"},
    }
    assert answer["partitions"][0]["retentionClass"] == "short"
