"""The contract of ReadLog, run against memory and Postgres; partitions; and the views for analysts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubechronicle.eventlog.memory.store import MemoryReads
from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
NOW = float(int(time.time()))


def read(number: int, **fields: Any) -> ReadRecord:
    values: dict[str, Any] = {
        "at": NOW - 100 + number, "revision": number, "resource": "secrets", "subresource": "", "namespace": "shop",
        "name": "db", "verb": "get", "form": "object", "user_name": "jane", "user_uid": "u",
        "user_groups": ("a", 'b"\\'),
        "impersonator": "", "request_uri": "/", "user_agent": "curl", "source_address": "10.0.0.1", "audit_id": "x",
    }  # fmt: skip
    return ReadRecord(**{**values, **fields})


def recording(**fields: Any) -> Recording:
    values: dict[str, Any] = {
        "id": uuid.uuid4(), "server": "one", "since": NOW - 100, "until": NOW, "lost": 0, "clean": False,
        "policy": {"rules": [{"level": "Metadata"}]},
    }  # fmt: skip
    return Recording(**{**values, **fields})


@pytest.fixture(params=["memory", "postgres"])
async def reads(request: pytest.FixtureRequest) -> Any:
    return MemoryReads() if request.param == "memory" else None


@pytest.fixture
async def recorded(reads: Any, replicas: Opener) -> Any:
    if reads is not None:
        return reads
    log = await replicas()
    await log.recorded.retain(0)
    return log.recorded


async def numbers(recorded: Any, query: ReadQuery, limit: int = 100) -> list[int]:
    return [each.revision for each in await recorded.list(query, limit=limit)]


def at(number: float) -> datetime:
    return datetime.fromtimestamp(NOW - 100 + number, UTC)


async def test_reads_come_back_as_they_were(recorded: Any) -> None:
    await recorded.record([read(1)], recording())
    (found,) = await recorded.list(ReadQuery(), limit=10)
    assert found._replace(id=0) == read(1)
    assert found.id > 0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ReadQuery(), [6, 5, 4, 3, 2, 1]),
        (ReadQuery(resources=("secrets",)), [5, 4, 3, 2, 1]),
        (ReadQuery(resources=("secrets",), namespace="shop", name="db"), [2, 1]),
        (ReadQuery(resources=("secrets", "configmaps"), name="db"), [6, 4, 2, 1]),
        (ReadQuery(namespaced=False), [4]),
        (ReadQuery(namespaced=True, user="jane"), [6, 3, 2, 1]),
        (ReadQuery(user="joe", verbs=("get",)), [5]),
        (ReadQuery(verbs=("list", "watch")), [4, 2]),
        (ReadQuery(since=at(2), until=at(4)), [4, 3, 2]),
    ],
)
async def test_queries(query: ReadQuery, expected: list[int], recorded: Any) -> None:
    await recorded.record(
        [
            read(1),
            read(2, name="", verb="list"),
            read(3, name="other"),
            read(4, namespace="", name="", verb="list", user_name="root"),
            read(5, namespace="yard", name="other", user_name="joe"),
            read(6, resource="configmaps", name="db"),
        ],
        recording(),
    )
    assert await numbers(recorded, query) == expected


async def test_pages_go_on_behind_the_last_read(recorded: Any) -> None:
    await recorded.record([read(number // 2) for number in range(6)], recording())
    found: list[ReadRecord] = []
    query = ReadQuery()
    while page := await recorded.list(query, limit=2):
        found += page
        query = query._replace(before=(datetime.fromtimestamp(page[-1].at, UTC), page[-1].id))
    assert [each.revision for each in found] == [2, 2, 1, 1, 0, 0]
    assert len({each.id for each in found}) == 6


async def test_a_recording_goes_on(recorded: Any) -> None:
    one = recording()
    await recorded.record([], one)
    await recorded.record([], one._replace(until=NOW + 5, lost=3, clean=True))
    await recorded.record([], recording(since=NOW + 1, server="two"))
    two, found = await recorded.recordings(limit=10)
    assert (found.until, found.lost, found.clean, found.policy) == (NOW + 5, 3, True, one.policy)
    assert two.server == "two"


async def test_texts_of_clients_may_have_any_character(recorded: Any) -> None:
    await recorded.record([read(1, user_agent="a\0b", name="ä'\"")], recording())
    (found,) = await recorded.list(ReadQuery(), limit=1)
    assert found.name == "ä'\""
    assert found.user_agent in ("a\0b", "a�b")


async def test_old_weeks_are_dropped(replicas: Opener, run_sql: RunSql) -> None:
    recorded = (await replicas()).recorded
    await recorded.retain(0)
    old = NOW - timedelta(days=30).total_seconds()
    run_sql(f"select kubechronicle.make_reads_partition(to_timestamp({old}))")
    await recorded.record([read(1), read(2, at=old)], recording())
    assert await numbers(recorded, ReadQuery()) == [1, 2]
    assert await recorded.retain(0) == []
    (dropped,) = await recorded.retain(10)
    assert dropped.startswith("reads_")
    assert await numbers(recorded, ReadQuery()) == [1]
    await recorded.record([read(3, at=old)], recording())  # its week has no table
    assert await numbers(recorded, ReadQuery()) == [1, 3]
    await recorded.retain(10)
    assert await numbers(recorded, ReadQuery()) == [1]


async def test_analysts_see_reads(replicas: Opener, run_sql: RunSql) -> None:
    await (await replicas()).recorded.record([read(1)], recording())
    assert run_sql("select user_name, verb, resource, name from chronicle.reads") == "jane|get|secrets|db"
    assert run_sql("select server, lost, clean from chronicle.read_recordings") == "one|0|f"
    assert run_sql("select has_table_privilege('chronicle_reader', 'chronicle.reads', 'select')") == "t"
