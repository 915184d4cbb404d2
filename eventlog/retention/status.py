"""HistoryStatus: the amount of history by resource, and the times at which partitions are dropped.

The cost is bounded. A large log is sampled by pages (TABLESAMPLE); counts and sizes by resource are then estimates. All
other data come from indexes and the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.postgres.sql import FIRST_REVISION_SINCE
from kubechronicle.eventlog.retention.retention import (
    CLASSES,
    OTHERS,
    RetentionPolicy,
    class_age,
    marks,
    resource_classes,
)

SAMPLE_PAGES = 8192  # of 8 kB: the maximum to read
GROWTH_OVER = timedelta(days=7)
SHORTEST_GROWTH = timedelta(hours=1)  # a shorter time does not allow a rate per day
ROW_OVERHEAD = 700  # bytes of a row without its object: user and request, digests, index entries

_LOG_PAGES = """
select coalesce(sum(pg_relation_size(relid)), 0)::bigint / 8192 as pages,
    coalesce(sum(pg_total_relation_size(relid)), 0)::bigint as bytes
from pg_partition_tree('kubechronicle.log') where isleaf
"""
_OTHER_BYTES = """
select pg_total_relation_size('kubechronicle.kept') as kept, pg_total_relation_size('kubechronicle.live') as live,
    pg_total_relation_size('kubechronicle.tombstones') as tombstones
"""
# $1 the first revision counted as growth. {} the percentage of pages.
_SAMPLE = f"""
select resource, count(*) as rows, sum(pg_column_size(object) + {ROW_OVERHEAD})::bigint as weight,
    count(*) filter (where revision >= $1) as lately,
    coalesce(sum(pg_column_size(object) + {ROW_OVERHEAD}) filter (where revision >= $1), 0)::bigint as weight_lately
from kubechronicle.log tablesample system ({{}}) repeatable (1) group by resource
"""
# An index descent per resource and partition.
_RESOURCES = """
with recursive found (resource) as (
    (select resource from kubechronicle.log order by resource limit 1)
    union all
    select (select l.resource from kubechronicle.log l where l.resource > f.resource order by l.resource limit 1)
    from found f where f.resource is not null)
select resource from found where resource is not null
"""
_EDGE = """
select revision, committed_at from kubechronicle.log where resource = $1 and revision > $2
order by revision {} limit 1
"""
_PARTITIONS = """
select c.relname::text as name, pg_total_relation_size(c.oid) as bytes,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''(\\d+)''\\)'))[1]::bigint as first,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass('kubechronicle.log_' || $1) order by 3
"""
_NEWEST_BELOW = """
select committed_at from kubechronicle.log where revision < $1 order by revision desc limit 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStatus:
    """The history of one resource.

    ``oldest``, ``newest``: revision and time of the first and last change with history; None if there is none.
    ``changes_per_day``, ``bytes_per_day``: None if the log is too young.
    """

    resource: str
    changes: int
    bytes: int
    oldest: tuple[int, datetime] | None
    newest: tuple[int, datetime] | None
    changes_per_day: float | None
    bytes_per_day: float | None
    policy: RetentionPolicy
    compacted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Revisions ``first`` to ``last`` of a retention class.

    ``droppable_at``: the time from which the policies allow its drop; None: it is not full yet, or ``for_ever``.
    ``for_ever``: it has a resource without a maximum age.
    """

    name: str
    retention_class: str
    first: int
    last: int
    bytes: int
    droppable_at: datetime | None
    for_ever: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStatus:
    """``exact``: the numbers by resource are counted, not estimated. Bytes include indexes."""

    log_id: str
    revision: int
    committed_at: datetime
    compacted: int
    exact: bool
    log_bytes: int
    kept_bytes: int
    tombstone_bytes: int
    live_bytes: int
    resources: tuple[ResourceStatus, ...]
    partitions: tuple[PartitionStatus, ...]


async def history_status(
    session: PostgresSession, policies: Sequence[RetentionPolicy], *, now: datetime | None = None
) -> HistoryStatus:
    """Return the present status under these policies."""
    async with session.snapshot():
        await session.execute("lock table kubechronicle.log in access share mode")
        clock: datetime = now or (await session.fetch("select clock_timestamp()"))[0][0]
        head = await marks(session)
        log_id, committed_at = (await session.fetch("select log_id, committed_at from kubechronicle.head"))[0]
        pages, log_bytes = (await session.fetch(_LOG_PAGES))[0]
        per_cent = min(100.0, 100.0 * SAMPLE_PAGES / max(pages, 1))
        since, days = await _growth_span(session, clock)
        sample = {row["resource"]: row for row in await session.fetch(_SAMPLE.format(per_cent), since)}
        weight = sum(row["weight"] for row in sample.values())
        scale = _Scale(rows=100 / per_cent, bytes=log_bytes / weight if weight else 0.0, days=days)
        by_resource = {policy.resource: policy for policy in policies}
        others = by_resource.get(OTHERS, RetentionPolicy(resource=OTHERS))
        resources = [
            await _resource(session, row[0], by_resource.get(row[0], others), head.compacted_for(row[0]), sample, scale)
            for row in await session.fetch(_RESOURCES)
        ]
        kept, live, tombstones = (await session.fetch(_OTHER_BYTES))[0]
        partitions = await _partitions(session, policies, head.revision)
    return HistoryStatus(
        log_id=str(log_id),
        revision=head.revision,
        committed_at=committed_at,
        compacted=head.oldest,
        exact=per_cent == 100.0,
        log_bytes=log_bytes,
        kept_bytes=kept,
        live_bytes=live,
        tombstone_bytes=tombstones,
        resources=tuple(sorted(resources, key=lambda status: (-status.bytes, status.resource))),
        partitions=partitions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Factors from the sample to the whole log. ``days``: the time of the counted growth; None: too short."""

    rows: float
    bytes: float
    days: float | None


async def _growth_span(session: PostgresSession, clock: datetime) -> tuple[int, float | None]:
    """Return the first revision of the recent days, and the number of these days."""
    since = clock - GROWTH_OVER
    first = int((await session.fetch(FIRST_REVISION_SINCE, since))[0][0])
    oldest = await session.fetch("select committed_at from kubechronicle.log order by revision limit 1")
    span = clock - max(since, oldest[0][0]) if oldest else timedelta(0)
    return first, span / timedelta(days=1) if span >= SHORTEST_GROWTH else None


async def _resource(
    session: PostgresSession, resource: str, policy: RetentionPolicy, mark: int, sample: dict[str, Any], scale: _Scale
) -> ResourceStatus:
    sampled = sample.get(resource)
    rows, weight, lately, weight_lately = (sampled[name] if sampled is not None else 0 for name in _SAMPLE_COLUMNS)
    edges = [await session.fetch(_EDGE.format(order), resource, mark) for order in ("asc", "desc")]
    oldest, newest = ((edge[0][0], edge[0][1]) if edge else None for edge in edges)
    return ResourceStatus(
        resource=resource,
        changes=round(rows * scale.rows),
        bytes=round(weight * scale.bytes),
        oldest=oldest,
        newest=newest,
        changes_per_day=lately * scale.rows / scale.days if scale.days else None,
        bytes_per_day=weight_lately * scale.bytes / scale.days if scale.days else None,
        policy=policy,
        compacted=mark,
    )


_SAMPLE_COLUMNS = ("rows", "weight", "lately", "weight_lately")


async def _partitions(
    session: PostgresSession, policies: Sequence[RetentionPolicy], newest: int
) -> tuple[PartitionStatus, ...]:
    classes = await resource_classes(session)
    statuses = []
    for retention_class in CLASSES:
        age = class_age(policies, retention_class, classes)
        for row in await session.fetch(_PARTITIONS, retention_class):
            droppable_at = None
            if age is not None and newest >= row["until"] - 1:
                last = await session.fetch(_NEWEST_BELOW, row["until"])
                droppable_at = (last[0][0] if last else datetime.now(UTC)) + age
            statuses.append(
                PartitionStatus(
                    name=row["name"],
                    retention_class=retention_class,
                    first=row["first"],
                    last=row["until"] - 1,
                    bytes=row["bytes"],
                    droppable_at=droppable_at,
                    for_ever=age is None,
                )
            )
    return tuple(statuses)
