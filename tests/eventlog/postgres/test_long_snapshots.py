"""Somebody's long snapshot (pg_dump, an analyst) does not make appends slower: they pass no dead versions of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from log_changes import batch, create, open_session_of, put, update

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.records import Record

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]

APPENDS = 400
# $1 operation, $2 name, $3 expected revision
_EXPLAIN = """
explain (analyze, buffers, timing off, format json)
select kubechronicle.append_change(gen_random_uuid(), {expected}::bigint, {operation}::smallint,
    'long', 'pods', 'ns', '{name}', 'u', '', '', '{{}}', null, '', '', '', '', '', '', '',
    '{{}}'::json, null)
"""


async def pages_of_append(session: Any, *, name: str, expected: int) -> int:
    """Append a change; return the number of pages that Postgres looked at."""
    statement = _EXPLAIN.format(expected=expected, operation=2 if expected else 1, name=name)
    plan = orjson.loads((await session.fetch(statement))[0][0])[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_a_long_snapshot_makes_no_append_dearer(replicas: Opener) -> None:
    log = await replicas()
    hot = await put(log, create("hot"))
    async with open_session_of(log) as reader, open_session_of(log) as writer, reader.snapshot():
        await reader.fetch("select count(*) from kubechronicle.migrations")  # takes the snapshot

        async def pages(name: str) -> tuple[int, int]:
            """Return the pages of a creation, and of an update of the hot object."""
            nonlocal hot
            created = await pages_of_append(writer, name=name, expected=0)
            updated = await pages_of_append(writer, name="hot", expected=hot.revision)
            hot = (await log.read(after=(await log.head()).revision - 1, limit=1))[0]
            return created, updated

        await pages("warm")
        before = await pages("before")
        for _ in range(APPENDS):
            hot = await put(log, update(hot))
        after = await pages("after")
        # The same number of batches, and of several changes.
        others: list[Record] = [await put(log, create(f"other-{number}")) for number in range(2)]
        for _ in range(3):
            outcomes = (await log.append(batch(update(hot), *map(update, others)))).outcomes
            hot, *others = [outcome[0] for outcome in outcomes]
    # Of 400 dead versions, each costs a page or two where they are passed.
    assert after[0] <= before[0] + 30, (before, after)
    assert after[1] <= before[1] + 30, (before, after)
    async with open_session_of(log) as session:
        assert (await verify(session)).problem is None


async def test_only_the_newest_rows_of_heads_stay(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    hot = await put(log, create("hot"))
    for number in range(24):
        outcomes = (await log.append(batch(update(hot), *(create(f"n-{number}-{n}") for n in range(220))))).outcomes
        hot = outcomes[0][0]
    head = (await log.head()).revision
    assert head == 24 * 221 + 1
    oldest, newest = map(int, run_sql("select min(revision), max(revision) from kubechronicle.heads").split("|"))
    assert newest == head
    assert oldest > head - 3000


async def test_an_append_needs_a_snapshot_newer_than_its_lock(replicas: Opener) -> None:
    log = await replicas()
    async with open_session_of(log) as session:
        await session.execute("begin isolation level repeatable read")
        with pytest.raises(LogError, match="read committed"):
            await session.fetch(_EXPLAIN.format(expected=0, operation=1, name="x"))
        await session.execute("rollback")


async def test_functions_of_version_0_1_0_append_to_the_same_log(replicas: Opener, run_sql: RunSql) -> None:
    """Servers of the last release go on beside this one while it is rolled out."""
    log = await replicas()
    ours = await put(log, create("a"))
    what = "'pods', 'ns', 'a', 'u', '', '', '{}', null, '', '', '', '', '', '', '', '{}'"
    run_sql(
        f"select kubechronicle.append_change(gen_random_uuid(), 1, 2::smallint, 'long', {what})",
        f"select kubechronicle.append_one(gen_random_uuid(), 2, 2::smallint, {what})",
        "select * from kubechronicle.append(gen_random_uuid(), '{1}', '{3}', '{3}', '{pods}', '{ns}', '{a}', '{u}',"
        " '{x}', '{x}', '{\"{}\"}', '{null}', '{x}', '{x}', '{x}', '{x}', '{x}', '{x}', '{x}', array['{}'::json])",
    )
    assert [record.revision for record in await log.read(after=ours.revision, limit=9)] == [2, 3, 4]
    assert run_sql("select revision, compacted_long, sole from kubechronicle.head") == "4|0|"
    assert run_sql("select count(*) from kubechronicle.live") == "0"
    assert (await put(log, create("a"))).revision == 5
    async with open_session_of(log) as session:
        assert (await verify(session)).problem is None


async def test_the_head_is_set_back_and_forth_through_its_view(replicas: Opener, run_sql: RunSql) -> None:
    """As a restore does, and a function of version 0.1.0 that was under way while the schema was migrated."""
    log = await replicas()
    for name in "abc":
        await put(log, create(name))
    for revision in (9, 2):
        run_sql(f"update kubechronicle.head set revision = {revision}, compacted_long = 1, hash = '\\x01'")
        assert run_sql("select revision, compacted_long, hash from kubechronicle.head") == f"{revision}|1|\\x01"
