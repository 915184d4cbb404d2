"""Retention: compacts history, drops old partitions, and makes new ones in advance.

Each resource has a policy: a maximum age and number of changes. Compaction moves the resource's mark, its compacted
revision; a read or watch below it gets 410 Gone. Rows are stored by retention class. Resources of the class 'short'
(events, leases) have many changes that are soon worthless; those of the class 'long' are kept long. A partition is
dropped once it is below the marks of all resources of its class. The steps leave a consistent log wherever they stop:

    archive         if there is a directory: write the rows to a file, sync and rename it (archives.py). The database
                    records that a directory was given once: after that, a server without one drops nothing
    copy_forward    one transaction: copy the newest row of each object to ``kept``, and all digests to ``tombstones``;
                    append the entry that records the drop (integrity/drops.py)
    detach          DETACH PARTITION … CONCURRENTLY: waits for readers; nothing waits for it
    drop            drop the table, which no query sees any more

Invariant: an object as of any revision at or above its resource's mark is in the log or in ``kept``. Nothing here runs
on the appender's connection, and one server at a time does this (a lock, locks.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from kubechronicle.eventlog.errors import Compacted, FutureRevision, LogUnavailable, NotArchived
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.listener import CHANNEL, NOTIFY
from kubechronicle.eventlog.postgres.locks import MAINTENANCE, held, shared_appends
from kubechronicle.eventlog.postgres.session import ConnectionLost, PostgresSession
from kubechronicle.eventlog.postgres.sql import FIRST_REVISION_SINCE
from kubechronicle.eventlog.records import Head
from kubechronicle.eventlog.retention import archives

DETACH_TIMEOUT = 5.0  # seconds in which append() cannot make a partition; with a long reader, the next run retries
BATCHES_KEPT = timedelta(days=1)  # a server settles a batch within seconds of reconnecting
PARTITIONS_PER_AGE = 24  # at most 1/24 more than max_age is stored, and queries plan for a few dozen tables
SMALLEST_SPAN = 100_000  # revisions in a partition: an idle cluster makes few partitions
LONGEST_STEP = timedelta(minutes=10)  # by which the time of retention goes on in a run; a server's runs are five apart
LARGEST_SPAN = 20_000_000  # a partition of some 30 GB is still copied and dropped in minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The retention of a resource's history, by age and number of changes; the stricter bound applies.

    ``resource``: a group-resource, or OTHERS for all without a policy of their own.
    ``max_age``, ``max_changes``: None for no bound.

    Existing objects are kept regardless of their age.
    """

    resource: str
    max_age: timedelta | None = None
    max_changes: int | None = None


OTHERS = "*"
DEFAULT_POLICIES = (
    # the state of the cluster at any moment of the last year
    RetentionPolicy(resource=OTHERS, max_age=timedelta(days=365)),
    # events expire after an hour and leases are heartbeats: one day suffices to examine last night's incident
    RetentionPolicy(resource="events", max_age=timedelta(days=1)),
    RetentionPolicy(resource="events.events.k8s.io", max_age=timedelta(days=1)),
    RetentionPolicy(resource="leases.coordination.k8s.io", max_age=timedelta(days=1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """The result of applying the policies once. ``busy``: another server was applying them, so nothing was done."""

    busy: bool = False
    compacted: tuple[tuple[str, int], ...] = ()  # (resource or OTHERS, its mark now), where the mark moved
    dropped: tuple[str, ...] = ()  # names of partitions
    unarchived: tuple[str, ...] = ()  # partitions kept because they have to be archived and no directory was given
    made: tuple[str, ...] = ()  # classes that got a new partition
    batches_pruned: int = 0


CLASSES = ("short", "long")
ACTOR = "kubechronicle"
"""The author of moves of marks by a server itself."""
_RESOURCE_CLASSES = "select resource, class from kubechronicle.resource_classes"
_MOVE = "select kubechronicle.move_marks($1, $2::jsonb, $3, $4)"
_MARKS = "select revision, compacted_long, compacted_of from kubechronicle.head"
# $1 resource, $2 number of changes to keep. The newest revision beyond that number.
_COUNTED = """
select revision from kubechronicle.log_{} where resource = $1 order by revision desc offset $2::bigint limit 1
"""
_PARTITIONS = """
select c.relname::text as name, i.inhdetachpending as detaching,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('kubechronicle.log_' || $1) order by 3
"""
# $1 table. A partition that is or was being detached has its bounds as a constraint (DETACH PARTITION CONCURRENTLY).
_BOUNDS = """
select coalesce((regexp_match(p.bounds, 'FROM \\(''(\\d+)'))[1],
        (regexp_match(p.checks, 'revision >= ''?(\\d+)'))[1])::bigint as first,
    coalesce((regexp_match(p.bounds, 'TO \\(''(\\d+)'))[1],
        (regexp_match(p.checks, 'revision < ''?(\\d+)'))[1])::bigint as until
from (select pg_get_expr(c.relpartbound, c.oid) as bounds, (
        select string_agg(pg_get_constraintdef(k.oid), ' ') from pg_constraint k
        where k.conrelid = c.oid and k.contype = 'c') as checks
    from pg_class c where c.oid = to_regclass($1)) p
"""
_DETACHED = """
select c.relname::text as name from pg_class c
where c.relnamespace = to_regnamespace('kubechronicle') and c.relkind = 'r'
    and c.relname ~ ('^log_' || $1 || '_[0-9]+$')
    and not exists (select from pg_inherits i where i.inhrelid = c.oid)
"""
# The class needs its next partition when the head is in the last half of the newest one. Also the rate of revisions.
_GROWTH = """
select h.revision, c.span, c.partitioned_until,
    h.revision - l.revision as revisions, extract(epoch from h.committed_at - l.committed_at)::float8 as seconds
from kubechronicle.head h join kubechronicle.retention_classes c on c.class = $1
left join lateral (
    select revision, committed_at from kubechronicle.log
    where revision > greatest(h.revision - 100000, 0) order by revision limit 1) l on true
"""
_TO_ARCHIVE = "select bool_or(to_archive) from kubechronicle.retention_classes"
_REQUIRE_ARCHIVES = "update kubechronicle.retention_classes set to_archive = $1 where to_archive <> $1"
_DROPPED = "update kubechronicle.retention_classes set dropped_until = $2 where class = $1"
# $1 time: of batches committed before it.
_PRUNE = (
    "with gone as (delete from kubechronicle.batches where id in (select id from kubechronicle.batches"
    " where committed_at < $1 order by committed_at limit 10000) returning 1)"
    " select count(*) from gone"
)
# $1 the longest step.
_TIME = "select kubechronicle.retention_time($1::interval)"


def next_span(*, revisions: int | None, seconds: float | None, max_age: timedelta | None) -> int:
    """Return the number of revisions of the next partition. ``revisions``: number of recent ones in ``seconds``."""
    if not revisions or not seconds or max_age is None:
        return SMALLEST_SPAN * 10
    per_partition = revisions / seconds * max_age.total_seconds() / PARTITIONS_PER_AGE
    return int(min(max(per_partition, SMALLEST_SPAN), LARGEST_SPAN)) // 1000 * 1000


async def compact(
    session: PostgresSession, revision: int, *, archive: Path | None = None, actor: str = ACTOR, reason: str = ""
) -> Head:
    """Move the marks of all resources to the revision, and drop the partitions below.

    ``actor``, ``reason``: recorded with the move (integrity/marks.py).

    ``archive``: the directory for archives of these partitions. Compacted, FutureRevision as in etcd. NotArchived:
    archives are required, and no directory was given.
    """
    if await _lacks_archive(session, archive):
        raise NotArchived
    head = await marks(session)
    if revision > head.revision:
        raise FutureRevision(revision, head.revision)
    if revision <= head.oldest:
        raise Compacted(revision, head.oldest)
    of = orjson.dumps(dict.fromkeys(head.compacted_of, revision)).decode()
    await session.fetch(_MOVE, revision, of, actor, reason)
    await session.fetch(NOTIFY, CHANNEL, str(head.revision))  # other servers apply the new marks at once
    head = await marks(session)
    async with _exclusive(session) as alone:
        if alone:
            classes = await resource_classes(session)
            for retention_class in CLASSES:
                until = _class_mark(head, retention_class, classes)
                await _drop(session, retention_class, until=until, archive=archive)
    return head


async def retain(
    session: PostgresSession,
    policies: Sequence[RetentionPolicy],
    *,
    now: datetime | None = None,
    archive: Path | None = None,
) -> Retained:
    """Apply the policies once.

    ``now``: by default the time of retention, which a wrong clock cannot move far. It is at most the newest commit
    time, and goes on by at most LONGEST_STEP.
    ``archive``: the directory for archives of partitions before their drop.

    Marks never go back: the strictest policy of all servers applies. If one server requires archives, all do.
    """
    lacks_archive = await _lacks_archive(session, archive)
    async with _exclusive(session) as alone:
        if not alone:
            return Retained(busy=True)
        now = now or (await session.fetch(_TIME, LONGEST_STEP))[0][0]
        classes = await resource_classes(session)
        made = [  # first, since dropping may have to wait for the next run
            retention_class
            for retention_class in CLASSES
            if await make_ahead(session, retention_class, class_age(policies, retention_class, classes))
        ]
        before = await marks(session)
        targets = await target_marks(session, policies, now=now)
        rest = targets.pop(OTHERS, 0)
        await session.fetch(_MOVE, rest, orjson.dumps(targets).decode(), ACTOR, "retention policies")
        head = await marks(session)
        compacted = [(OTHERS, head.compacted)] if head.compacted != before.compacted else []
        compacted += [(name, mark) for name, mark in head.compacted_of.items() if mark != before.compacted_for(name)]
        if compacted:
            await session.fetch(NOTIFY, CHANNEL, str(head.revision))
        dropped: list[str] = []
        unarchived: list[str] = []
        for retention_class in CLASSES:
            until = _class_mark(head, retention_class, classes)
            if lacks_archive:
                unarchived += await _droppable(session, retention_class, until=until)
            else:
                dropped += await _drop(session, retention_class, until=until, archive=archive)
        pruned = await _prune(session, now - BATCHES_KEPT)
    return Retained(
        compacted=tuple(compacted),
        dropped=tuple(dropped),
        unarchived=tuple(unarchived),
        made=tuple(made),
        batches_pruned=pruned,
    )


async def require_archives(session: PostgresSession, required: bool) -> None:
    """Let servers drop only archived history; or (False) let servers without a directory drop again."""
    await session.fetch(_REQUIRE_ARCHIVES, required)


async def _lacks_archive(session: PostgresSession, archive: Path | None) -> bool:
    """Return whether nothing may be dropped: archives are required, and no directory was given.

    A directory makes archives required from now on.
    """
    if archive is not None:
        await require_archives(session, True)
        return False
    return bool((await session.fetch(_TO_ARCHIVE))[0][0])


async def marks(session: PostgresSession) -> Head:
    """Return the head, with the marks of all resources."""
    return rows.head((await session.fetch(_MARKS))[0])


async def target_marks(
    session: PostgresSession, policies: Sequence[RetentionPolicy], *, now: datetime
) -> dict[str, int]:
    """Return the mark for each policy now, by resource; 0 for none.

    The state as of the mark itself can still be read. So the mark is the last revision that is too old, or the newest
    change beyond the maximum number.
    """
    classes = await resource_classes(session)
    by_age: dict[timedelta, int] = {}
    targets: dict[str, int] = {}
    for policy in policies:
        mark = 0
        if policy.max_age is not None:
            if policy.max_age not in by_age:
                since = await session.fetch(FIRST_REVISION_SINCE, now - policy.max_age)
                by_age[policy.max_age] = since[0][0] - 1
            mark = by_age[policy.max_age]
        if policy.max_changes is not None:
            statement = _COUNTED.format(classes.get(policy.resource, "long"))
            mark = max([mark, *(row[0] for row in await session.fetch(statement, policy.resource, policy.max_changes))])
        targets[policy.resource] = mark
    return targets


async def resource_classes(session: PostgresSession) -> dict[str, str]:
    """Return the retention class by resource; resources not in it have the class 'long'."""
    return {row["resource"]: row["class"] for row in await session.fetch(_RESOURCE_CLASSES)}


def _class_mark(head: Head, retention_class: str, classes: Mapping[str, str]) -> int:
    """Return the revision below which no resource of the class has history."""
    if retention_class == "long":
        own = [mark for name, mark in head.compacted_of.items() if classes.get(name, "long") == "long"]
        return min([head.compacted, *own])
    return min(head.compacted_for(name) for name, its_class in classes.items() if its_class == retention_class)


def class_age(
    policies: Sequence[RetentionPolicy], retention_class: str, classes: Mapping[str, str]
) -> timedelta | None:
    """Return the age at which partitions of the class may be dropped; None: never."""
    ages = {policy.resource: policy.max_age for policy in policies}
    if retention_class == "long":
        named = [age for name, age in ages.items() if classes.get(name, "long") == "long"]
    else:
        rest = ages.get(OTHERS)
        named = [ages.get(name, rest) for name, its_class in classes.items() if its_class == retention_class]
    bounded = [age for age in named if age is not None]
    return max(bounded) if bounded and len(bounded) == len(named) else None


@asynccontextmanager
async def _exclusive(session: PostgresSession) -> AsyncIterator[bool]:
    """Hold the lock of maintenance within the block; False: another server holds it. Statements have no timeout."""
    await session.execute("set statement_timeout = 0; set enable_seqscan = on; set plan_cache_mode = auto")
    async with held(session, MAINTENANCE) as alone:
        yield alone


async def _droppable(session: PostgresSession, retention_class: str, *, until: int) -> list[str]:
    """Return the names of the partitions that would be dropped."""
    rest = await session.fetch(_DETACHED, retention_class)
    below = [row for row in await session.fetch(_PARTITIONS, retention_class) if row["until"] - 1 <= until]
    return [row["name"] for row in (*below, *rest)]


async def _drop(session: PostgresSession, retention_class: str, *, until: int, archive: Path | None) -> list[str]:
    """Drop the class's partitions at or below the revision; return their names.

    Oldest first, as copy_forward requires. Stops at a partition that a reader holds; the next run continues there.
    """
    dropped: list[str] = []
    parent = f"kubechronicle.log_{retention_class}"
    for row in await session.fetch(_PARTITIONS, retention_class):
        if row["until"] - 1 > until and not row["detaching"]:
            break
        table = f"kubechronicle.{row['name']}"
        await _archive(session, archive, row["name"], retention_class)
        if not row["detaching"]:
            async with shared_appends(session):  # the log records the drop
                await session.fetch("select kubechronicle.copy_forward($1::text::regclass, $2)", table, retention_class)
        mode = "finalize" if row["detaching"] else "concurrently"
        detach = f"alter table {parent} detach partition {table} {mode}"
        if not await _execute_with_lock_timeout(session, detach, DETACH_TIMEOUT):
            break
        await session.fetch(_DROPPED, retention_class, row["until"])
        dropped.append(row["name"])
    # The partitions detached above, and those that a server detached before it crashed.
    for row in await session.fetch(_DETACHED, retention_class):
        await _archive(session, archive, row["name"], retention_class)
        await session.execute(f"drop table kubechronicle.{row['name']}")
    return dropped


async def _archive(session: PostgresSession, archive: Path | None, table: str, retention_class: str) -> None:
    """Archive a partition if there is a directory. May be repeated, since a partition to drop never changes."""
    if archive is None:
        return
    constraint = (await session.fetch(_BOUNDS, f"kubechronicle.{table}"))[0]
    if constraint["first"] is not None:
        bounds = range(constraint["first"], constraint["until"])
        await archives.write_partition(session, archive, table, retention_class, bounds)


async def _execute_with_lock_timeout(session: PostgresSession, statement: str, seconds: float) -> bool:
    """Run the statement; return False if it waited longer than this for a lock."""
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


async def make_ahead(session: PostgresSession, retention_class: str, max_age: timedelta | None) -> bool:
    """Make the class's next partition if the newest is half full. It holds the head's lock for milliseconds."""
    head, span, partitioned_until, revisions, seconds = (await session.fetch(_GROWTH, retention_class))[0]
    if head < partitioned_until - span // 2:
        return False
    await session.fetch(
        "update kubechronicle.retention_classes set span = $2 where class = $1",
        retention_class,
        next_span(revisions=revisions, seconds=seconds, max_age=max_age),
    )
    # A partition delays appends, so this waits briefly for its lock. At the last moment append() makes it itself.
    return await _execute_with_lock_timeout(session, f"select kubechronicle.make_partition('{retention_class}')", 1.0)


async def _prune(session: PostgresSession, before: datetime) -> int:
    """Delete the ids of batches committed before the time, some at a time; return their number."""
    pruned = 0
    while gone := (await session.fetch(_PRUNE, before))[0][0]:
        pruned += int(gone)
    return pruned
