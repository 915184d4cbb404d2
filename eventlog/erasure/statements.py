"""The statements of Eraser. ``{}`` in a statement is the table, followed by a further condition where noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubechronicle.eventlog.integrity.digests import COLUMNS
from kubechronicle.eventlog.integrity.erasures import ERASED_USER, TAGS

CHUNK: Final = 200  # rows at a time

NAMES: Final = COLUMNS
# All tables with rows: partitions, also those that a killed server detached and did not drop, and the copied rows.
TABLES = """
select c.relname::text as name from pg_class c
where c.relnamespace = to_regnamespace('kubechronicle') and c.relkind = 'r'
    and (c.relname ~ '^log_(long|short)_[0-9]+$' or c.relname = 'kept')
order by c.relname = 'kept', c.relname
"""
# $1 first and $2 last revision; {} the table and a condition.
_MATCHING = "from kubechronicle.{} where revision between $1::bigint and $2::bigint and {}"
TOTALS = f"""
select count(*) as rows, coalesce(sum(octet_length(object::text)), 0)::bigint as bytes, min(revision) as first,
    max(revision) as last, min(committed_at) as oldest, max(committed_at) as newest,
    array_agg(distinct resource) as resources
{_MATCHING}
"""
ROWS = f"select {', '.join(NAMES)}, digest {_MATCHING} order by revision limit {CHUNK}"
HOLDS = "select hold, revision, resource, namespace, name, selector, reason from kubechronicle.holds() order by hold"


def changed_objects(tables: Sequence[str], condition: str) -> str:
    """Return the statement for the objects that an erasure changes. ``condition``: on rows of revisions $1 to $2."""
    return " union all ".join(
        f"select resource, namespace, name {_MATCHING.format(each, condition)}" for each in tables
    )


# $1, $2, $3: resources, namespaces and names.
THESE_OBJECTS = (
    "select resource, namespace, name from unnest($1::text[], $2::text[], $3::text[]) o (resource, namespace, name)"
)


def objects_under_hold(objects: str, place: int) -> str:
    """Return the statement for those of ``objects`` that a hold names.

    ``place``: the number of the next argument: resource ("*" for all), namespace and name of the hold ("" for any).
    """
    return (
        f"select distinct resource, namespace, name from ({objects}) c where (${place} = '*' or resource = ${place})"
        f" and (${place + 1} = '' or namespace = ${place + 1}) and (${place + 2} = '' or name = ${place + 2})"
    )


def labels_under_hold(objects: str, place: int, tables: Sequence[str]) -> str:
    """Return the statement for the different labels that the objects of ``objects_under_hold`` ever had.

    After its arguments comes the most labels to return. Encrypted revisions have 'encrypted'.
    """
    revisions = " union all ".join(
        "select case when kubechronicle.is_encrypted(object) then 'encrypted' else "
        f"coalesce(object #>> '{{metadata,labels}}', '{{}}') end as labels from kubechronicle.{each} l "
        "where l.resource = h.resource and l.namespace = h.namespace and l.name = h.name "
        "and not kubechronicle.is_erased(l.object)"
        for each in tables
    )
    held = objects_under_hold(objects, place)
    return f"select distinct r.labels from ({held}) h cross join lateral ({revisions}) r limit ${place + 3}::int"


LIVE_REVISION = "select revision from kubechronicle.live where resource = $1 and namespace = $2 and name = $3"
UID_OF = """
select uid from (select uid from kubechronicle.log where revision = $1 union all
    select uid from kubechronicle.kept where revision = $1) r limit 1
"""
TOMBSTONES = """
select revision, erasure::text, was, remains from kubechronicle.erased where revision = any ($1::bigint[])
"""
ADD_TOMBSTONES = """
insert into kubechronicle.erased (revision, erasure, was, remains)
select u.revision, $1::uuid, u.was, u.remains
from unnest($2::bigint[], $3::bytea[], $4::bytea[]) u (revision, was, remains)
on conflict (revision, erasure) do nothing
"""
CHANGED_COLUMNS = (
    "name",
    "user_name",
    "user_uid",
    "user_groups",
    "user_extra",
    "impersonator",
    "request_uri",
    "user_agent",
    "source_address",
    "audit_id",
    "object",
    "reason",
)
_CASTS: Mapping[str, str] = {"user_groups": "::text[]", "user_extra": "::json", "object": "::json"}
# Recorded reads (queries/reads.py). $1: the user; $2, $3: first and last revision.
ERASE_READER = f"""
with erased as (
    update kubechronicle.reads set user_name = '{ERASED_USER}', user_uid = '', user_groups = '{{}}', impersonator = '',
        request_uri = '', user_agent = '', source_address = '', audit_id = ''
    where (user_name = $1 or impersonator = $1) and user_name <> '{ERASED_USER}'
        and revision between $2::bigint and $3::bigint
    returning 1)
select count(*) from erased
"""
# $1, $2: first and last revision; $3, $4, $5: resource, namespace and name of the object. Its name becomes ERASED_NAME.
ERASED_NAME = "<erased>"
ERASE_READ_NAME = f"""
with erased as (
    update kubechronicle.reads set name = '{ERASED_NAME}', request_uri = ''
    where revision between $1::bigint and $2::bigint and resource = $3 and namespace = $4 and name = $5 returning 1)
select count(*) from erased
"""
# Tags that are encrypted at rest, which an erasure cannot search.
ENCRYPTED_TAGS = f"""
select distinct name from (
    select name, object from kubechronicle.log where resource = '{TAGS}'
    union all select name, object from kubechronicle.kept where resource = '{TAGS}') r
where object->>'encrypted' is not null order by name
"""
# $1: the user; $2, $3: first and last revision. Present Tags that name the user.
TAGS_OF = f"""
select r.* from kubechronicle.live e cross join lateral (
    select {", ".join(NAMES)} from kubechronicle.log where revision = e.revision
    union all
    select {", ".join(NAMES)} from kubechronicle.kept where revision = e.revision limit 1) r
where e.resource = '{TAGS}' and e.revision between $2::bigint and $3::bigint and r.object->'spec'->>'user' = $1
order by e.revision
"""
# Branches rest on history, and their changes may hold what is erased: they are dropped, and say so.
ERASE_BRANCHES = """
with dropped as (delete from kubechronicle.branch_changes returning 1),
    emptied as (update kubechronicle.branches set erased = true, changes = 0, bytes = 0, revision = base returning 1)
select count(*) from dropped
"""
UPDATE_ROWS = (
    "update kubechronicle.{} l set "
    + ", ".join(f"{name} = u.{name}{_CASTS.get(name, '')}" for name in CHANGED_COLUMNS)
    + " from unnest($1::bigint[], "
    + ", ".join(f"${place}::text[]" for place in range(2, len(CHANGED_COLUMNS) + 2))
    + f") u (revision, {', '.join(CHANGED_COLUMNS)}) where l.revision = u.revision"
)
ERASURE_DIGEST = """
select count(*) as rows, min(revision) as first, max(revision) as last, sha256(string_agg(
    int8send(revision) || was || remains, ''::bytea order by revision)) as digest
from kubechronicle.erased where erasure = $1
"""
# Tables whose statistics have names of objects. Statistics of partitioned tables exist only after a manual ANALYZE.
ANALYZED_TABLES = """
select distinct tablename::text as name from pg_stats
where schemaname = 'kubechronicle' and tablename in ('live', 'log', 'log_long', 'log_short')
"""
ENTRIES = """
select r.object::text as object from kubechronicle.live e cross join lateral (
    select object from kubechronicle.log where revision = e.revision
    union all
    select object from kubechronicle.kept where revision = e.revision limit 1) r
where e.resource = $1
"""
ARCHIVED_FILES = """
select file from kubechronicle.archived a
where first <= $1 and class = any (
    select coalesce((select class from kubechronicle.resource_classes where resource = $2), 'long')
    union all select class from kubechronicle.retention_classes where $2 = '')
order by class, first
"""
