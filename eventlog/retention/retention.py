"""Forgetting history: moving the compacted marks, dropping partitions with their survivors copied forward, making new
ones ahead.

Each resource has a policy: how old a change may become, and how many there may be. To compact is to move the resource's
mark: below it a read or watch is answered 410 Gone. Rows are stored by retention class: resources of the class 'short'
(events, leases) are many and soon worthless, the others are kept long. What lies below the marks of all resources of a
class is dropped when a whole partition does, in steps that leave a consistent log wherever they are interrupted:

    archive         where there is a directory for it: its rows to a file, synced and renamed (archives.py). That there
                    was one once, the database remembers: who has none drops nothing then
    copy_forward    one transaction: the newest row of each object there to ``kept``, all digests to ``tombstones``
    detach          DETACH PARTITION … CONCURRENTLY: waits for readers, nobody waits for it
    drop            nobody can see the table any more

Invariant: an object as of any revision at or above its resource's mark is found in the log or in ``kept``.
Nothing here runs on the appender's connection, and only one server does it at a time (an advisory lock).
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
from kubechronicle.eventlog.postgres.session import ConnectionLost, Session
from kubechronicle.eventlog.postgres.sql import FIRST_REVISION_SINCE
from kubechronicle.eventlog.records import Head
from kubechronicle.eventlog.retention import archives

ADVISORY_LOCK = 0x6B637274  # "kcrt"
DETACH_PATIENCE = 5.0  # seconds; meanwhile append() could not make a partition, so a long reader is left for next time
BATCHES_KEPT = timedelta(days=1)  # a server asks for a batch within seconds of reconnecting
PARTITIONS_PER_AGE = 24  # so that at most a 24th more than max_age is stored, and queries plan for a few dozen tables
SMALLEST_SPAN = 100_000  # revisions in a partition: an idle cluster makes few partitions
LARGEST_SPAN = 20_000_000  # a partition of some 30 GB is still copied and dropped in minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long the history of a resource is kept: whichever of the two ends first. ``resource``: a group-resource, or
    OTHERS for all that have no policy of their own. ``max_age`` None: for ever; ``max_changes`` None: however many.
    Objects that exist are kept however old they are."""

    resource: str
    max_age: timedelta | None = None
    max_changes: int | None = None


OTHERS = "*"
DEFAULT_POLICIES = (
    # what the cluster looked like at any moment of the last year
    RetentionPolicy(resource=OTHERS, max_age=timedelta(days=365)),
    # events expire after an hour and a lease's history is a heartbeat: a day is for looking into last night's incident
    RetentionPolicy(resource="events", max_age=timedelta(days=1)),
    RetentionPolicy(resource="events.events.k8s.io", max_age=timedelta(days=1)),
    RetentionPolicy(resource="leases.coordination.k8s.io", max_age=timedelta(days=1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one application of the policies did. ``busy``: another server was at it, so nothing."""

    busy: bool = False
    compacted: tuple[tuple[str, int], ...] = ()  # (resource or OTHERS, its mark now), where the mark moved
    dropped: tuple[str, ...] = ()  # names of partitions
    unarchived: tuple[str, ...] = ()  # those that are to be archived, and so were not dropped without a directory
    made: tuple[str, ...] = ()  # classes that got a new partition
    batches_pruned: int = 0


CLASSES = ("short", "long")
_RESOURCE_CLASSES = "select resource, class from kubechronicle.resource_classes"
_MOVE = "select kubechronicle.move_marks($1, $2::jsonb)"
_MARKS = "select revision, compacted_long, compacted_of from kubechronicle.head"
# $1 resource, $2 how many changes: the newest that is one too many.
_COUNTED = """
select revision from kubechronicle.log_{} where resource = $1 order by revision desc offset $2::bigint limit 1
"""
_PARTITIONS = """
select c.relname::text as name, i.inhdetachpending as detaching,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('kubechronicle.log_' || $1) order by 3
"""
# $1 table. What is being detached, and has been, has its bounds as a constraint (DETACH PARTITION CONCURRENTLY).
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
# The class needs its next partition when the head is in the last half of the newest. How fast do revisions come?
_GROWTH = """
select h.revision, c.span, c.partitioned_until,
    h.revision - l.revision as revisions, extract(epoch from h.committed_at - l.committed_at)::float8 as seconds
from kubechronicle.head h join kubechronicle.retention_classes c on c.class = $1
left join lateral (
    select revision, committed_at from kubechronicle.log
    where revision > greatest(h.revision - 100000, 0) order by revision limit 1) l on true
"""
_TO_ARCHIVE = "select bool_or(to_archive) from kubechronicle.retention_classes"
_WISH = "update kubechronicle.retention_classes set to_archive = $1 where to_archive <> $1"
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


async def compact(session: Session, revision: int, *, archive: Path | None = None) -> Head:
    """Move the marks of all resources to the revision, and drop what can be; ``archive`` is the directory it goes to
    before. Compacted, FutureRevision as in etcd; NotArchived if there is none and it is to be archived."""
    if await _kept_for_archive(session, archive):
        raise NotArchived
    head = await marks(session)
    if revision > head.revision:
        raise FutureRevision(revision, head.revision)
    if revision <= head.oldest:
        raise Compacted(revision, head.oldest)
    await session.fetch(_MOVE, revision, orjson.dumps(dict.fromkeys(head.compacted_of, revision)).decode())
    await session.fetch(NOTIFY, CHANNEL, str(head.revision))  # so that other servers hear of the marks at once
    head = await marks(session)
    async with _only_one(session) as alone:
        if alone:
            classes = await resource_classes(session)
            for retention_class in CLASSES:
                until = _class_mark(head, retention_class, classes)
                await _drop(session, retention_class, until=until, archive=archive)
    return head


async def retain(
    session: Session,
    policies: Sequence[RetentionPolicy],
    *,
    now: datetime | None = None,
    archive: Path | None = None,
) -> Retained:
    """Apply the policies once. ``now``: by default the database's clock, which also stamps the rows. ``archive``: the
    directory to which partitions go before they are dropped. Marks never go back: of the policies of several servers,
    the shortest counts, and of their wishes to archive that of anyone."""
    kept = await _kept_for_archive(session, archive)
    async with _only_one(session) as alone:
        if not alone:
            return Retained(busy=True)
        classes = await resource_classes(session)
        made = [  # first, since dropping may have to be left for next time
            retention_class
            for retention_class in CLASSES
            if await make_ahead(session, retention_class, class_age(policies, retention_class, classes))
        ]
        before = await marks(session)
        wanted = await wanted_marks(session, policies, now=now)
        rest = wanted.pop(OTHERS, 0)
        await session.fetch(_MOVE, rest, orjson.dumps(wanted).decode())
        head = await marks(session)
        compacted = [(OTHERS, head.compacted)] if head.compacted != before.compacted else []
        compacted += [(name, mark) for name, mark in head.compacted_of.items() if mark != before.compacted_for(name)]
        if compacted:
            await session.fetch(NOTIFY, CHANNEL, str(head.revision))
        dropped: list[str] = []
        unarchived: list[str] = []
        for retention_class in CLASSES:
            until = _class_mark(head, retention_class, classes)
            if kept:
                unarchived += await _droppable(session, retention_class, until=until)
            else:
                dropped += await _drop(session, retention_class, until=until, archive=archive)
        pruned = await _prune(session)
    return Retained(
        compacted=tuple(compacted),
        dropped=tuple(dropped),
        unarchived=tuple(unarchived),
        made=tuple(made),
        batches_pruned=pruned,
    )


async def wish_to_archive(session: Session, wished: bool) -> None:
    """Let no server drop what is not archived; or (False) let those without a directory drop again."""
    await session.fetch(_WISH, wished)


async def _kept_for_archive(session: Session, archive: Path | None) -> bool:
    """Whether nothing may be dropped, because it is to be archived and there is no directory here. A directory is the
    wish that it be so from now on."""
    if archive is not None:
        await wish_to_archive(session, True)
        return False
    return bool((await session.fetch(_TO_ARCHIVE))[0][0])


async def marks(session: Session) -> Head:
    return rows.head((await session.fetch(_MARKS))[0])


async def wanted_marks(
    session: Session, policies: Sequence[RetentionPolicy], *, now: datetime | None = None
) -> dict[str, int]:
    """The mark each policy asks for now, by resource; 0 for none. The state as of the mark itself can still be read, so
    it is the last revision that is too old, or the newest change that is one too many."""
    clock: datetime = now or (await session.fetch("select clock_timestamp()"))[0][0]
    classes = await resource_classes(session)
    by_age: dict[timedelta, int] = {}
    found: dict[str, int] = {}
    for policy in policies:
        mark = 0
        if policy.max_age is not None:
            if policy.max_age not in by_age:
                since = await session.fetch(FIRST_REVISION_SINCE, clock - policy.max_age)
                by_age[policy.max_age] = since[0][0] - 1
            mark = by_age[policy.max_age]
        if policy.max_changes is not None:
            statement = _COUNTED.format(classes.get(policy.resource, "long"))
            mark = max([mark, *(row[0] for row in await session.fetch(statement, policy.resource, policy.max_changes))])
        found[policy.resource] = mark
    return found


async def resource_classes(session: Session) -> dict[str, str]:
    return {row["resource"]: row["class"] for row in await session.fetch(_RESOURCE_CLASSES)}


def _class_mark(head: Head, retention_class: str, classes: Mapping[str, str]) -> int:
    """Up to where no resource of the class has history any more."""
    if retention_class == "long":
        own = [mark for name, mark in head.compacted_of.items() if classes.get(name, "long") == "long"]
        return min([head.compacted, *own])
    return min(head.compacted_for(name) for name, its_class in classes.items() if its_class == retention_class)


def class_age(
    policies: Sequence[RetentionPolicy], retention_class: str, classes: Mapping[str, str]
) -> timedelta | None:
    """How old a partition of the class becomes; None: there is no bound."""
    ages = {policy.resource: policy.max_age for policy in policies}
    if retention_class == "long":
        named = [age for name, age in ages.items() if classes.get(name, "long") == "long"]
    else:
        rest = ages.get(OTHERS)
        named = [ages.get(name, rest) for name, its_class in classes.items() if its_class == retention_class]
    bounded = [age for age in named if age is not None]
    return max(bounded) if bounded and len(bounded) == len(named) else None


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


async def _droppable(session: Session, retention_class: str, *, until: int) -> list[str]:
    """Names of the partitions that would be dropped."""
    rest = await session.fetch(_DETACHED, retention_class)
    below = [row for row in await session.fetch(_PARTITIONS, retention_class) if row["until"] - 1 <= until]
    return [row["name"] for row in (*below, *rest)]


async def _drop(session: Session, retention_class: str, *, until: int, archive: Path | None) -> list[str]:
    """Drop the class's partitions that lie at or below the revision, oldest first: copy_forward relies on it. Leaves
    the rest for next time where a reader does not let go of a partition."""
    dropped: list[str] = []
    parent = f"kubechronicle.log_{retention_class}"
    for row in await session.fetch(_PARTITIONS, retention_class):
        if row["until"] - 1 > until and not row["detaching"]:
            break
        table = f"kubechronicle.{row['name']}"
        await _archive(session, archive, row["name"], retention_class)
        if not row["detaching"]:
            await session.fetch("select kubechronicle.copy_forward($1::text::regclass, $2)", table, retention_class)
        how = "finalize" if row["detaching"] else "concurrently"
        if not await _patiently(session, f"alter table {parent} detach partition {table} {how}", DETACH_PATIENCE):
            break
        await session.fetch(_DROPPED, retention_class, row["until"])
        dropped.append(row["name"])
    # These and, had a server died before it got here, what it had detached.
    for row in await session.fetch(_DETACHED, retention_class):
        await _archive(session, archive, row["name"], retention_class)
        await session.execute(f"drop table kubechronicle.{row['name']}")
    return dropped


async def _archive(session: Session, archive: Path | None, table: str, retention_class: str) -> None:
    """A partition is not changed any more when it is dropped, so it does not matter how often this is begun."""
    if archive is None:
        return
    constraint = (await session.fetch(_BOUNDS, f"kubechronicle.{table}"))[0]
    if constraint["first"] is not None:
        bounds = range(constraint["first"], constraint["until"])
        await archives.write_partition(session, archive, table, retention_class, bounds)


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


async def make_ahead(session: Session, retention_class: str, max_age: timedelta | None) -> bool:
    """Make the class's next partition if the newest is half full. It takes milliseconds under the head's lock."""
    head, span, partitioned_until, revisions, seconds = (await session.fetch(_GROWTH, retention_class))[0]
    if head < partitioned_until - span // 2:
        return False
    await session.fetch(
        "update kubechronicle.retention_classes set span = $2 where class = $1",
        retention_class,
        next_span(revisions=revisions, seconds=seconds, max_age=max_age),
    )
    # Making it holds up appends, so it does not wait; and append() makes it itself when there is no next time.
    return await _patiently(session, f"select kubechronicle.make_partition('{retention_class}')", 1.0)


async def _prune(session: Session) -> int:
    """Forget settled batches, some at a time."""
    pruned = 0
    while gone := (await session.fetch(_PRUNE, BATCHES_KEPT))[0][0]:
        pruned += int(gone)
    return pruned
