"""Compaction and retention: dropped and readable history, without delays for readers and writers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import trio

from kubechronicle.eventlog.errors import Compacted, FutureRevision, LogUnavailable
from kubechronicle.eventlog.integrity import drops
from kubechronicle.eventlog.postgres.locks import MAINTENANCE, held
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who
from kubechronicle.eventlog.retention import retention
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, OTHERS, RetentionPolicy, next_span

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
State = dict[Key, Record]

SHORT = ("events", "events.events.k8s.io", "leases.coordination.k8s.io")
PARTITIONS = "select relname from pg_class where relname ~ '^log_(long|short)_[0-9]+$' and relkind = 'r' order by oid"


async def change(log: Any, state: State, key: Key, *, delete: bool = False) -> Record:
    current = state.get(key)
    operation = Operation.DELETE if delete else Operation.UPDATE if current else Operation.CREATE
    body = b'{"apiVersion":"v1","kind":"X","metadata":{"name":"%s"},"at":"%s"}' % (
        key.name.encode(),
        uuid4().hex.encode(),
    )
    proposed = Change(key=key, uid="u", expected=current.revision if current else 0, operation=operation, body=body)
    batch = Batch(id=uuid4(), transactions=(Transaction(changes=(proposed,), who=Who(user="alice")),))
    (outcome,) = (await log.append(batch)).outcomes
    assert not isinstance(outcome, Rejected), outcome
    state.pop(key, None)
    if not delete:
        state[key] = outcome[0]
    return outcome[0]  # type: ignore[no-any-return]


async def history(log: Any, revisions: int, *, resources: tuple[str, ...] = ("events", "pods")) -> list[State]:
    """Append random changes of a few objects; return the state at every revision. Some objects never change again."""
    dice = random.Random(7)
    states: list[State] = [{}]
    for number in range(revisions):
        state = dict(states[-1])
        name = f"old{number}" if number < 6 else dice.choice("abcdefgh")
        key = Key(dice.choice(resources), dice.choice("xy"), name)
        await change(log, state, key, delete=key in state and dice.random() < 0.4)
        states.append(state)
    return states


def summaries(records: list[Record]) -> list[tuple[Key, int, int, bytes]]:
    """Return the records without the entries of the log itself, which record drops."""
    return [
        (record.key, record.revision, record.version, record.body)
        for record in records
        if record.key.resource != drops.RESOURCE
    ]


async def check_state(log: Any, state: State, revision: int, resource: str) -> None:
    expected = [state[key] for key in sorted(state) if key.resource == resource]
    assert summaries(await log.list_at(resource, revision=revision, limit=100)) == summaries(expected)
    for name in ("a", "b", "old0", "old1"):
        key = Key(resource, "x", name)
        found = await log.get_at(key, revision=revision)
        assert summaries([found] if found else []) == summaries([state[key]] if key in state else [])


async def small_partitions(log: Any, span: int = 20) -> None:
    """Make partitions small from the next one on. The template's partitions are declared to end at 21."""
    async with log._maintenance() as session:
        for retention_class in ("long", "short"):
            await session.execute(f"""
                alter table kubechronicle.log_{retention_class} detach partition kubechronicle.log_{retention_class}_1;
                drop table kubechronicle.log_{retention_class}_1;
                update kubechronicle.retention_classes set span = {span}, partitioned_until = 1
                    where class = '{retention_class}';
                select kubechronicle.make_partition('{retention_class}')
            """)


async def test_append_makes_partitions_that_retention_did_not_make(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log)
    states = await history(log, 70)
    assert len(run_sql(PARTITIONS).split()) == 8
    for revision in (0, 20, 21, 40, 41, 70):
        await check_state(log, states[revision], revision, "pods")


async def test_partitions_are_attached_before_the_commit_of_their_rows(replicas: Opener, run_sql: RunSql) -> None:
    """Other backends hear of a new partition an instant after its commit is visible. Rows of that commit in it were
    missing from queries in between."""
    log = await replicas()
    await small_partitions(log, span=10)
    await history(log, 35)
    run_sql("select kubechronicle.jump(1000, '{}')")  # partitions begin behind it
    await change(log, {}, Key("pods", "z", "after"))
    assert len(run_sql(PARTITIONS).split()) == 10
    attached_late = (
        "select revision from kubechronicle.log l join pg_inherits i on i.inhrelid = l.tableoid"
        " where i.xmin::text::bigint >= l.xmin::text::bigint order by revision"
    )
    assert run_sql(attached_late) == ""


async def test_objects_of_readable_revisions_survive_dropped_partitions(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log)
    states = await history(log, 130)
    dropped = 0
    for mark, partitions in ((50, 10), (90, 6), (115, 6)):
        head = await log.compact(mark)
        assert (head.revision, head.compacted) == (130 + dropped, mark)
        dropped = int(run_sql("select count(*) from kubechronicle.live where resource like 'drops.%'"))
        assert len(run_sql(PARTITIONS).split()) == partitions
        for revision in range(mark, 131):
            for resource in ("events", "pods"):
                await check_state(log, states[revision], revision, resource)
        with pytest.raises(Compacted):
            await log.list_at("pods", revision=mark - 1, limit=1)
        loaded = [record async for _, records in log.load() for record in records]
        assert sorted(summaries(loaded)) == sorted(summaries(list(states[130].values())))
        for record, previous in await log.read_resource("pods", after=mark, until=130, limit=100):
            before = states[record.revision - 1].get(record.key)
            assert (previous.revision if previous else 0) == (before.revision if before else 0)
        verdict = await log.verify()
        assert verdict.problem is None
        assert verdict.rows + verdict.tombstones == 130 + dropped == 130 + len(verdict.drops)
        assert verdict.tombstones == mark // 20 * 20


async def test_a_revision_inside_a_partition_only_moves_the_mark(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log)
    await history(log, 30)
    before = run_sql(PARTITIONS)
    await log.compact(15)
    assert run_sql(PARTITIONS) == before
    assert (await log.head()).compacted == 15
    with pytest.raises(Compacted):
        await log.read(after=14, limit=1)
    with pytest.raises(Compacted):
        await log.compact(15)
    with pytest.raises(FutureRevision):
        await log.compact(31)


async def test_short_lived_resources_are_dropped_earlier(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log)
    states = await history(log, 90)
    await small_age(log, run_sql, until=50)
    retained = await log.retain()
    assert retained.compacted == tuple((resource, 50) for resource in SHORT)
    assert retained.dropped == ("log_short_1", "log_short_21")
    head = await log.head()
    assert (head.compacted, head.compacted_for("pods"), head.compacted_for("events")) == (0, 0, 50)
    for revision in range(91):
        await check_state(log, states[revision], revision, "pods")
        if revision >= 50:
            await check_state(log, states[revision], revision, "events")
    with pytest.raises(Compacted):
        await log.get_at(Key("events", "x", "a"), revision=49)
    with pytest.raises(Compacted):
        await log.read(after=49, limit=1)  # some rows are gone
    assert len(summaries(await log.read(after=50, limit=100))) == 40
    assert (await log.verify()).problem is None


async def test_each_resource_has_its_policy(replicas: Opener, run_sql: RunSql) -> None:
    """Policies by age and by count, longer and shorter than the default; unneeded partitions of a class are dropped."""
    log = await replicas()
    await small_partitions(log)
    resources = ("events", "pods", "secrets", "configmaps")
    states = await history(log, 120, resources=resources)
    await small_age(log, run_sql, until=50)
    policies = [
        RetentionPolicy(resource=OTHERS, max_age=timedelta(days=1)),
        RetentionPolicy(resource="pods", max_age=timedelta(days=1), max_changes=5),
        RetentionPolicy(resource="secrets"),
    ]
    pods = [
        int(row)
        for row in run_sql(
            "select revision from kubechronicle.log where resource = 'pods' order by revision desc"
        ).split()
    ]
    assert (await log.retain(policies)).dropped == ("log_short_1", "log_short_21")
    head = await log.head()
    marks = {"configmaps": 50, "events": 50, "pods": pods[5], "secrets": 0}
    assert {resource: head.compacted_for(resource) for resource in resources} == marks
    assert len(await log.read_resource("pods", after=pods[5], until=120, limit=100)) == 5
    for resource, mark in marks.items():
        for revision in range(mark, 121):
            await check_state(log, states[revision], revision, resource)
        if mark:
            with pytest.raises(Compacted):
                await log.list_at(resource, revision=mark - 1, limit=1)
    # from now on secrets are kept as all others, and nothing keeps the partitions
    policies.pop()
    retained = await log.retain(policies)
    assert retained.dropped == ("log_long_1", "log_long_21")
    assert dict((await log.head()).compacted_of) == {"pods": pods[5]}
    for resource in resources:
        for revision in range(marks[resource] or 50, 121):
            await check_state(log, states[revision], revision, resource)
    assert (await log.verify()).problem is None
    await log.compact(100)
    assert (await log.head()).oldest == 100


async def small_age(log: Any, run_sql: RunSql, *, until: int) -> None:
    """Let the first revisions be two days old, and recompute their digests."""
    columns = run_sql(
        "select string_agg(quote_ident(name), ', ') from unnest(array['revision', 'create_revision', 'version',"
        " 'previous_revision', 'committed_at', 'operation', 'resource', 'namespace', 'name', 'uid', 'user_name',"
        " 'user_uid', 'user_groups', 'user_extra', 'impersonator', 'verb', 'request_uri', 'user_agent',"
        " 'source_address', 'field_manager', 'audit_id', 'object']) name"
    )
    run_sql(
        f"update kubechronicle.log set committed_at = committed_at - interval '2 days' where revision <= {until}",
        f"update kubechronicle.log set digest = sha256(record_send(row({columns})))",
        "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
        " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
        " as hash from kubechronicle.log) c where c.revision = l.revision",
        "update kubechronicle.head set hash = (select hash from kubechronicle.log order by revision desc limit 1)",
    )
    assert (await log.verify()).problem is None


async def test_the_first_revision_since_a_moment(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    assert await log.first_revision_since(datetime.now(UTC)) == 1
    records = [await change(log, {}, Key("pods", "x", f"n{number}")) for number in range(40)]
    for record in records[::7]:
        assert await log.first_revision_since(record.committed_at) == record.revision
        assert await log.first_revision_since(record.committed_at + timedelta(microseconds=1)) == record.revision + 1
    assert await log.first_revision_since(datetime.now(UTC) + timedelta(hours=1)) == 41


async def test_compaction_stalls_neither_reads_nor_writes(replicas: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader holds its snapshot open meanwhile: detaching waits for it, and nothing waits for detaching."""
    monkeypatch.setattr(retention, "DETACH_TIMEOUT", 60.0)
    log, other = await replicas(), await replicas()
    await small_partitions(log)
    state = (await history(log, 60))[-1]
    loading = log.load()
    await anext(loading)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.compact, 45)
        with trio.fail_after(60):
            while (await log.head()).compacted != 45:
                await trio.lowlevel.checkpoint()
            async with log._maintenance() as session:  # until the compaction waits for the reader
                waiting = (
                    "select from pg_stat_activity where query ~ '^alter.*concurrently' and wait_event_type = 'Lock'"
                )
                while not await session.fetch(waiting):
                    await trio.lowlevel.checkpoint()
            for _ in range(30):
                await change(log, state, Key("pods", "x", "a"))
                await check_state(other, state, (await other.head()).revision, "pods")
        await loading.aclose()
    assert (await log.verify()).tombstones == 40


async def test_reads_are_correct_while_partitions_are_dropped(replicas: Opener) -> None:
    log, other = await replicas(), await replicas()
    await small_partitions(log, span=10)
    states = await history(log, 150)
    done = False

    async def read() -> None:
        while not done:
            revision = 149
            await check_state(other, states[revision], revision, "pods")
            loaded = [record async for _, records in other.load() for record in records]
            assert sorted(summaries(loaded)) == sorted(summaries(list(states[150].values())))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for mark in range(10, 150, 20):
                await log.compact(mark)
            done = True
    assert (await log.verify()).problem is None


async def test_an_interrupted_drop_is_finished(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log)
    states = await history(log, 70)
    # a crash after copying forward
    run_sql(
        "select kubechronicle.move_marks(20, '{}')",
        "select kubechronicle.copy_forward('kubechronicle.log_long_1', 'long')",
    )
    assert (await log.verify()).problem is None
    await log.compact(65)
    # a crash after detaching
    run_sql(
        "update kubechronicle.head set compacted_long = 70",
        "create table kubechronicle.log_long_999 (like kubechronicle.log)",
    )
    await log.retain()
    assert "log_long_999" not in run_sql(PARTITIONS)
    await check_state(log, states[70], 70, "pods")
    assert (await log.verify()).problem is None


async def test_a_long_reader_is_awaited_for_a_bounded_time(
    replicas: Opener, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DETACH_TIMEOUT", 0.1)
    log, other = await replicas(), await replicas()
    await small_partitions(log)
    states = await history(log, 60)
    loading = log.load()
    await anext(loading)
    with trio.fail_after(60):
        await other.compact(45)
    assert run_sql("select count(*) from pg_inherits where inhdetachpending") == "2"  # one of each class
    await check_state(log, states[60], 60, "pods")
    await history_more(log, 30)  # partitions can be made
    await loading.aclose()
    assert (await log.retain()).dropped == ("log_short_1", "log_short_21", "log_long_1", "log_long_21")
    await check_state(log, states[45], 45, "events")
    assert (await log.verify()).problem is None


async def test_a_detach_that_was_interrupted_is_finished(replicas: Opener, run_sql: RunSql) -> None:
    """An interrupted detach is pending in Postgres until it is finalized."""
    log, other = await replicas(), await replicas()
    await small_partitions(log)
    states = await history(log, 60)
    loading = log.load()
    await anext(loading)
    async with trio.open_nursery() as nursery:

        async def compact_and_crash() -> None:
            with pytest.raises(LogUnavailable):
                await other.compact(45)

        nursery.start_soon(compact_and_crash)
        waiting = "from pg_stat_activity where query ~ '^alter.*concurrently' and wait_event_type = 'Lock'"
        while run_sql(f"select count(*) {waiting}") != "1":
            await trio.lowlevel.checkpoint()
        run_sql(f"select pg_terminate_backend(pid) {waiting}")
    await loading.aclose()
    assert run_sql("select count(*) from pg_inherits where inhdetachpending") == "1"
    assert (await log.verify()).problem is None
    for revision in (45, 60):
        await check_state(log, states[revision], revision, "pods")
    await log.compact(46)
    assert run_sql("select count(*) from pg_inherits where inhdetachpending") == "0"
    for revision in (46, 60):
        await check_state(log, states[revision], revision, "pods")
    verdict = await log.verify()
    assert (verdict.problem, verdict.tombstones) == (None, 40)


async def test_one_server_at_a_time_applies_the_policies(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    async with theirs._maintenance() as session, held(session, MAINTENANCE) as has:
        assert has
        assert (await ours.retain()).busy
    assert not (await ours.retain()).busy


async def test_a_server_of_the_version_before_excludes_retention(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    async with theirs._maintenance() as session:
        await session.fetch("select pg_advisory_lock($1)", MAINTENANCE.former)
        assert (await ours.retain()).busy
    assert not (await ours.retain()).busy
    async with ours._maintenance() as session, held(session, MAINTENANCE), theirs._maintenance() as other:
        assert not (await other.fetch("select pg_try_advisory_lock($1)", MAINTENANCE.former))[0][0]


async def test_partitions_are_made_in_advance(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await small_partitions(log, span=100)
    await history(log, 40)
    assert (await log.retain()).made == ()
    await history_more(log, 20)
    assert (await log.retain()).made == ("short", "long")
    assert (await log.retain()).made == ()
    assert run_sql("select partitioned_until > 100000 from kubechronicle.head") == "t"


async def history_more(log: Any, revisions: int) -> None:
    for number in range(revisions):
        await change(log, {}, Key("pods", "z", f"more{number}"))


async def test_old_batches_are_pruned(replicas: Opener, run_sql: RunSql) -> None:
    log = await replicas()
    await history(log, 5)
    run_sql("update kubechronicle.batches set committed_at = committed_at - interval '25 hours' where head <= 3")
    assert (await log.retain()).batches_pruned == 3
    assert run_sql("select count(*) from kubechronicle.batches") == "2"


@pytest.mark.parametrize(
    ("revisions", "seconds", "max_age", "span"),
    [
        (None, None, timedelta(days=1), 1_000_000),
        (1000, 0.0, timedelta(days=1), 1_000_000),
        (1000, 10.0, None, 1_000_000),
        (10, 3600.0, timedelta(days=365), 100_000),
        (100_000, 1000.0, timedelta(days=1), 360_000),
        (100_000, 100.0, timedelta(days=365), 20_000_000),
    ],
)
def test_the_span_of_the_next_partition(
    revisions: int | None, seconds: float | None, max_age: timedelta | None, span: int
) -> None:
    assert next_span(revisions=revisions, seconds=seconds, max_age=max_age) == span


def test_resources_of_the_class_short_have_a_policy(database: str, run_sql: RunSql) -> None:
    named = {policy.resource for policy in DEFAULT_POLICIES}
    assert named == {"*", *run_sql("select resource from kubechronicle.resource_classes where class = 'short'").split()}
