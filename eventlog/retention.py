"""Forgetting history: moving the compacted marks, dropping partitions with their survivors copied forward, making new
ones ahead.

Partitions go by retention class: resources of the class 'short' (events, leases) are many and soon worthless, the
others are kept long. To compact is to move a mark: below it a read or watch is answered 410 Gone. What lies below it is
dropped when a whole partition does, in steps that leave a consistent log wherever they are interrupted:

    copy_forward    one transaction: the newest row of each object there to ``kept``, all digests to ``tombstones``
    detach          DETACH PARTITION … CONCURRENTLY: waits for readers, nobody waits for it
    drop            nobody can see the table any more

Invariant: an object as of any revision at or above its class's mark is found in the log or in ``kept``.
Nothing here runs on the appender's connection, and only one server does it at a time (an advisory lock).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubechronicle.eventlog.errors import Compacted, FutureRevision, LogUnavailable
from kubechronicle.eventlog.postgres_listener import CHANNEL, NOTIFY
from kubechronicle.eventlog.postgres_session import ConnectionLost, Session
from kubechronicle.eventlog.records import Head

ADVISORY_LOCK = 0x6B637274  # "kcrt"
DETACH_PATIENCE = 5.0  # seconds; meanwhile append() could not make a partition, so a long reader is left for next time
BATCHES_KEPT = timedelta(days=1)  # a server asks for a batch within seconds of reconnecting
PARTITIONS_PER_AGE = 24  # so that at most a 24th more than max_age is stored, and queries plan for a few dozen tables
SMALLEST_SPAN = 100_000  # revisions in a partition: an idle cluster makes few partitions
LARGEST_SPAN = 20_000_000  # a partition of some 30 GB is still copied and dropped in minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long the history of a class of resources is kept; ``max_age`` None: for ever. Objects that exist are kept
    however old they are. Which resources are of which class is data: the table resource_classes."""

    retention_class: str
    max_age: timedelta | None


DEFAULT_POLICIES = (
    # events expire after an hour and a lease's history is a heartbeat: a day is for looking into last night's incident
    RetentionPolicy(retention_class="short", max_age=timedelta(days=1)),
    # everything else: what the cluster looked like at any moment of the last year
    RetentionPolicy(retention_class="long", max_age=timedelta(days=365)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one application of the policies did. ``busy``: another server was at it, so nothing."""

    busy: bool = False
    compacted: tuple[tuple[str, int], ...] = ()  # (class, its mark now), where the mark moved
    dropped: tuple[str, ...] = ()  # names of partitions
    made: tuple[str, ...] = ()  # classes that got a new partition
    batches_pruned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    table: str
    until: int  # the first revision above it
    detaching: bool


_MARK = {
    # $1: the mark. least(): never above what exists
    name: f"update kubechronicle.head set compacted_{name} = least($1, revision)"
    f" where compacted_{name} < least($1, revision) returning compacted_{name}"
    for name in ("long", "short")
}
_COMPACT = (
    "update kubechronicle.head set compacted_long = $1, compacted_short = greatest(compacted_short, $1)"
    " where revision >= $1 and compacted_long < $1 returning revision"
)
_MARKS = "select revision, compacted_long, compacted_short from kubechronicle.head"
_PARTITIONS = """
select c.relname::text as name, i.inhdetachpending as detaching,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('kubechronicle.log_' || $1) order by 3
"""
_DETACHED = """
select c.relname::text as name from pg_class c
where c.relnamespace = to_regnamespace('kubechronicle') and c.relkind = 'r'
    and c.relname ~ ('^log_' || $1 || '_[0-9]+$')
    and not exists (select from pg_inherits i where i.inhrelid = c.oid)
"""
# The class needs its next partition when the head is in the last half of the newest. How fast do revisions come?
_GROWTH = """
select h.revision, c.span, c.partitioned_until,
    h.revision - l.revision as revisions, extract(epoch from h.committed_at - l.committed_at)::float8 as seconds
from kubechronicle.head h join kubechronicle.retention_classes c on c.class = $1
left join lateral (
    select revision, committed_at from kubechronicle.log
    where revision > greatest(h.revision - 100000, 0) order by revision limit 1) l on true
"""
_DROPPED = "update kubechronicle.retention_classes set dropped_until = $2 where class = $1"
_PRUNE = (
    "with gone as (delete from kubechronicle.batches where id in (select id from kubechronicle.batches"
    " where committed_at < clock_timestamp() - $1::interval order by committed_at limit 10000) returning 1)"
    " select count(*) from gone"
)


def next_span(*, revisions: int | None, seconds: float | None, max_age: timedelta | None) -> int:
    """How many revisions the next partition shall hold, given how many came lately in how many seconds."""
    if not revisions or not seconds or max_age is None:
        return SMALLEST_SPAN * 10
    per_partition = revisions / seconds * max_age.total_seconds() / PARTITIONS_PER_AGE
    return int(min(max(per_partition, SMALLEST_SPAN), LARGEST_SPAN)) // 1000 * 1000


async def compact(session: Session, revision: int) -> Head:
    """Move the marks of all classes to the revision, and drop what can be. Compacted, FutureRevision as in etcd."""
    moved = await session.fetch(_COMPACT, revision)
    head, long, short = (await session.fetch(_MARKS))[0]
    if not moved:
        if revision > head:
            raise FutureRevision(revision, head)
        raise Compacted(revision, long)
    await session.fetch(NOTIFY, CHANNEL, str(head))  # so that other servers hear of the mark at once
    async with _only_one(session) as alone:
        if alone:
            await _drop(session, "long", until=long)
            await _drop(session, "short", until=short)
    return Head(revision=head, compacted=long)


async def retain(session: Session, policies: Sequence[RetentionPolicy], *, now: datetime | None = None) -> Retained:
    """Apply the policies once. ``now``: by default the database's clock, which also stamps the rows."""
    async with _only_one(session) as alone:
        if not alone:
            return Retained(busy=True)
        compacted: list[tuple[str, int]] = []
        dropped: list[str] = []
        made: list[str] = []
        for policy in policies:  # first, since dropping may have to be left for next time
            if await make_ahead(session, policy):
                made.append(policy.retention_class)
        for policy in policies:
            if mark := await _mark_by_age(session, policy, now):
                compacted.append((policy.retention_class, mark))
        head, long, short = (await session.fetch(_MARKS))[0]
        if compacted:
            await session.fetch(NOTIFY, CHANNEL, str(head))
        for policy in policies:
            until = long if policy.retention_class == "long" else max(long, short)
            dropped += await _drop(session, policy.retention_class, until=until)
        pruned = await _prune(session)
    return Retained(compacted=tuple(compacted), dropped=tuple(dropped), made=tuple(made), batches_pruned=pruned)


@asynccontextmanager
async def _only_one(session: Session) -> AsyncIterator[bool]:
    """True if this server may do maintenance now. It may take as long as it takes."""
    await session.execute("set statement_timeout = 0; reset enable_seqscan; reset plan_cache_mode")
    alone = bool((await session.fetch("select pg_try_advisory_lock($1)", ADVISORY_LOCK))[0][0])
    try:
        yield alone
    finally:
        if alone and not session.closed:
            await session.fetch("select pg_advisory_unlock($1)", ADVISORY_LOCK)


async def _mark_by_age(session: Session, policy: RetentionPolicy, now: datetime | None) -> int | None:
    """The class's mark where it had to move."""
    if policy.max_age is None:
        return None
    clock: datetime = now or (await session.fetch("select clock_timestamp()"))[0][0]
    first_kept = (await session.fetch("select kubechronicle.first_revision_since($1)", clock - policy.max_age))[0][0]
    # The state as of the mark itself can still be read, so the mark is the last revision that is too old.
    moved = await session.fetch(_MARK[policy.retention_class], first_kept - 1)
    return int(moved[0][0]) if moved else None


async def _drop(session: Session, retention_class: str, *, until: int) -> list[str]:
    """Drop the class's partitions that lie at or below the revision, oldest first: copy_forward relies on it. Leaves
    the rest for next time where a reader does not let go of a partition."""
    dropped: list[str] = []
    parent = f"kubechronicle.log_{retention_class}"
    for row in await session.fetch(_PARTITIONS, retention_class):
        if row["until"] - 1 > until and not row["detaching"]:
            break
        table = f"kubechronicle.{row['name']}"
        if not row["detaching"]:
            await session.fetch("select kubechronicle.copy_forward($1::text::regclass, $2)", table, retention_class)
        how = "finalize" if row["detaching"] else "concurrently"
        if not await _patiently(session, f"alter table {parent} detach partition {table} {how}", DETACH_PATIENCE):
            break
        await session.fetch(_DROPPED, retention_class, row["until"])
        dropped.append(row["name"])
    # These and, had a server died before it got here, what it had detached.
    for row in await session.fetch(_DETACHED, retention_class):
        await session.execute(f"drop table kubechronicle.{row['name']}")
    return dropped


async def _patiently(session: Session, statement: str, seconds: float) -> bool:
    """Run the statement unless it would have to wait longer than this for a lock."""
    await session.execute(f"set lock_timeout = '{seconds}s'")
    try:
        await session.execute(statement)
    except ConnectionLost:
        raise
    except LogUnavailable:
        return False
    finally:
        if not session.closed:
            await session.execute("set lock_timeout = 0")
    return True


async def make_ahead(session: Session, policy: RetentionPolicy) -> bool:
    """Make the class's next partition if the newest is half full. It takes milliseconds under the head's lock."""
    head, span, partitioned_until, revisions, seconds = (await session.fetch(_GROWTH, policy.retention_class))[0]
    if head < partitioned_until - span // 2:
        return False
    await session.fetch(
        "update kubechronicle.retention_classes set span = $2 where class = $1",
        policy.retention_class,
        next_span(revisions=revisions, seconds=seconds, max_age=policy.max_age),
    )
    # Making it holds up appends, so it does not wait; and append() makes it itself when there is no next time.
    return await _patiently(session, f"select kubechronicle.make_partition('{policy.retention_class}')", 1.0)


async def _prune(session: Session) -> int:
    """Forget settled batches, some at a time."""
    pruned = 0
    while gone := (await session.fetch(_PRUNE, BATCHES_KEPT))[0][0]:
        pruned += int(gone)
    return pruned
