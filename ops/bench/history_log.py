"""A long log for the benchmarks of history, appended by the log's own function, so that its hashes are valid.

A slot is one object of the cluster, or a sequence of short-lived ones. Each turn visits the next slots. A visit is one
revision; its operation depends on the number of earlier visits, so that the same arguments make the same log:

    lasting     create, then updates                     nodes, deployments, configmaps, secrets, services
    churning    create, some updates, delete, then a new object with another name     pods, events

The namespaces are created before the first turn. Commit times are spread over days, as in a cluster: append() uses
another clock meanwhile.
"""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson

from kubechronicle.eventlog.postgres import rows, sql
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.retention import retention

TURN = 1000  # revisions in one batch
PARTITION_INTERVAL = 50_000  # revisions between checks for new partitions; a server checks every five minutes
STRIDE = 7919  # a prime, so that neighbours in the log have distant keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object.

    ``share``: slots per thousand
    ``namespaces``: their number, 0 for a cluster-scoped kind
    ``size``: bytes of filling per object
    """

    resource: str
    api_version: str
    kind: str
    share: int
    namespaces: int
    churning: bool = False
    size: int = 600


KINDS = (
    Kind(resource="nodes", api_version="v1", kind="Node", share=10, namespaces=0, size=3000),
    Kind(resource="deployments.apps", api_version="apps/v1", kind="Deployment", share=10, namespaces=100, size=1500),
    Kind(resource="services", api_version="v1", kind="Service", share=50, namespaces=100),
    Kind(resource="secrets", api_version="v1", kind="Secret", share=130, namespaces=200),
    Kind(resource="configmaps", api_version="v1", kind="ConfigMap", share=200, namespaces=200),
    Kind(resource="pods", api_version="v1", kind="Pod", share=500, namespaces=500, churning=True, size=1800),
    Kind(resource="events", api_version="v1", kind="Event", share=100, namespaces=500, churning=True, size=300),
)

_SCHEMA = """
drop schema if exists kubechronicle_bench cascade;
create schema kubechronicle_bench;
create table kubechronicle_bench.kinds (
    low int primary key, high int, resource text, api_version text, kind text, namespaces int, churning bool,
    filling text);
create table kubechronicle_bench.clock (begins timestamptz, step interval);
create function kubechronicle_bench.now() returns timestamptz language sql volatile as
    'select c.begins + c.step * h.revision from kubechronicle_bench.clock c, kubechronicle.head h';
"""

# turn(first visit, number of visits, slots, stride) returns the newest revision.
_TURN = """
create function kubechronicle_bench.turn(first bigint, span int, slots int, stride int) returns bigint
language plpgsql set enable_seqscan = on as $$
declare
    done bigint;
begin
    with visit as (
        select t, slot, t / slots as visits, 5 + slot % 4 * 2 as life
        from generate_series(first, first + span - 1) t, lateral (select (t * stride % slots)::int as slot) s
    ), thing as (
        select v.*, k.*, case when churning then visits / life else 0 end as generation,
            case when churning then visits % life else visits end as step,
            case when namespaces = 0 then '' else 'team-' || lpad((slot % namespaces)::text, 3, '0') end as namespace
        from visit v join kubechronicle_bench.kinds k on v.slot >= k.low and v.slot < k.high
    ), named as (
        select *, lower(kind) || '-' || lpad(slot::text, 6, '0')
            || case when churning then '-' || generation else '' end as name from thing
    ), change as (
        select n.*, md5(slot || '-' || generation)::uuid::text as uid, coalesce(l.revision, 0) as expected,
            case when step = 0 then 1 when churning and step = life - 1 then 3 else 2 end as operation,
            format('user-%s', visits * 31 % 17) as user_name
        from named n left join kubechronicle.live l
            on l.resource = n.resource and l.namespace = n.namespace and l.name = n.name
    ), written as (
        select *, format(
            '{"apiVersion":"%s","kind":"%s","metadata":{"name":"%s",%s"uid":"%s","creationTimestamp":'
            '"2026-01-01T00:00:00Z","generation":%s,"labels":{"app":"app-%s","tier":"%s"},"annotations":{"filling":'
            '"%s"}},"spec":{"replicas":%s,"nodeName":"node-%s","paused":false},"status":{"phase":"%s","visits":%s}}',
            api_version, kind, name, case when namespace = '' then '' else format('"namespace":"%s",', namespace) end,
            uid, step + 1, slot % 97, (array['web', 'data', 'edge'])[slot % 3 + 1], filling, visits * 7 % 11,
            slot % 1000, (array['Pending', 'Running', 'Running', 'Running', 'Succeeded'])[step % 5 + 1], visits) as body
        from change order by t
    )
    select a.head into strict done from (
        select array_agg(1) as transactions, array_agg(expected) as expected, array_agg(operation::smallint) as ops,
            array_agg(resource) as resources, array_agg(namespace) as namespaces, array_agg(name) as names,
            array_agg(uid) as uids, array_agg(user_name) as users, array_agg(''::text) as nothing,
            array_agg('{developers,system:authenticated}'::text) as groups, array_agg(null::text) as extras,
            array_agg((array['create', 'update', 'delete'])[operation]) as verbs,
            array_agg('/apis/' || resource || '/namespaces/' || namespace || '/' || name) as uris,
            array_agg('kubectl/v1.36.0 (linux/amd64)'::text) as agents, array_agg('10.0.0.' || slot % 250) as addresses,
            array_agg('kubectl'::text) as managers, array_agg(uid) as audit_ids, array_agg(body::json) as bodies
        from written) w,
    lateral kubechronicle.append(gen_random_uuid(), w.transactions, w.expected, w.ops, w.resources, w.namespaces,
        w.names, w.uids, w.users, w.nothing, w.groups, w.extras, w.nothing, w.verbs, w.uris, w.agents, w.addresses,
        w.managers, w.audit_ids, w.bodies) a;
    return done;
end $$;
"""
# The function of this version; the one with fewer arguments is for servers of the version before.
DEFINITION = (
    "select pg_get_functiondef(p.oid) from pg_proc p where p.proname = 'append'"
    " and p.pronamespace = 'kubechronicle'::regnamespace order by p.pronargs desc limit 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The commit times of the revisions: one per ``step``."""

    begins: datetime
    step: timedelta

    @classmethod
    def up_to_now(cls, *, revisions: int, days: float) -> Pace:
        """Spread the revisions over the days up to now."""
        return cls(begins=datetime.now(UTC) - timedelta(days=days), step=timedelta(days=days) / (revisions + 1))


async def fill(session: PostgresSession, *, revisions: int, objects: int, days: float) -> None:
    """Append this many revisions of about this many objects to an empty log, committed over the days up to now."""
    pace = Pace.up_to_now(revisions=revisions, days=days)
    await extend(session, first=0, until=revisions, objects=objects, pace=pace)


async def extend(session: PostgresSession, *, first: int, until: int, objects: int, pace: Pace) -> None:
    """Append revisions to a log that only ``extend`` has filled, up to ``first`` (0: an empty log)."""
    await session.execute("set statement_timeout = 0; set synchronous_commit = off")
    await session.execute(_SCHEMA)
    low = 0
    for kind in KINDS:
        high = low + objects * kind.share // 1000
        # Half of the filling repeats, as field names do; the other half is noise that differs between kinds.
        await session.fetch(
            "insert into kubechronicle_bench.kinds values ($1, $2, $3, $4, $5, $6, $7,"
            " repeat('field-of-a-spec ', $8)"
            " || (select string_agg(md5(i::text || $3), '') from generate_series(1, $9) i))",
            low,
            high,
            kind.resource,
            kind.api_version,
            kind.kind,
            kind.namespaces,
            kind.churning,
            kind.size // 32,
            kind.size // 64,
        )
        low = high
    await session.fetch("insert into kubechronicle_bench.clock values ($1, $2)", pace.begins, pace.step)
    await session.execute(_TURN)
    append = (await session.fetch(DEFINITION))[0][0]
    await session.execute(append.replace("clock_timestamp()", "kubechronicle_bench.now()"))
    try:
        if first == 0:
            await _namespaces(session, max(kind.namespaces for kind in KINDS))
        await _turns(session, begin=first, until=until, slots=low)
    finally:
        await session.execute(append)
        await session.execute("drop schema kubechronicle_bench cascade")
    await session.execute("analyze kubechronicle.live; analyze kubechronicle.log")


async def _namespaces(session: PostgresSession, count: int) -> None:
    changes = []
    for number in range(count):
        name, uid = f"team-{number:03}", str(uuid.UUID(int=number))
        metadata = {"name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        labelled = {**metadata, "labels": {"kubernetes.io/metadata.name": name}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled, "spec": {"finalizers": ["kubernetes"]}}
        changes.append(
            Change(
                key=Key("namespaces", "", name),
                uid=uid,
                expected=0,
                operation=Operation.CREATE,
                body=orjson.dumps({**body, "status": {"phase": "Active"}}),
            )
        )
    batch = Batch(id=uuid.uuid4(), transactions=(Transaction(changes=tuple(changes), who=Who(user="user-0")),))
    await session.fetch(sql.APPEND, *rows.batch_arguments(batch))


async def _turns(session: PostgresSession, *, begin: int, until: int, slots: int) -> None:
    classes = await retention.resource_classes(session)
    ages = {each: retention.class_age(retention.DEFAULT_POLICIES, each, classes) for each in retention.CLASSES}
    started = time.monotonic()
    for first in range(begin, until, TURN):
        span = min(TURN, until - first, slots)
        await session.fetch("select kubechronicle_bench.turn($1, $2, $3, $4)", first, span, slots, STRIDE)
        done = first + span
        if done % PARTITION_INTERVAL == 0:
            for retention_class, age in ages.items():
                await retention.make_ahead(session, retention_class, age)
        if sys.stderr.isatty() or done % 100_000 == 0:
            rate = (done - begin) / (time.monotonic() - started)
            print(f"\r{done:,} revisions, {rate:,.0f} per second", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
