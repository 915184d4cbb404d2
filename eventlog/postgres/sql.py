"""The statements of PostgresLog, with their costs. SQL only; comments name the parameters.

Every reading statement joins the head row, so that result and compacted revisions belong to one snapshot. It returns at
least one row, whose other columns are null if nothing matches. ``{log}`` is the partitioned table of the resource's
retention class, so that only its partitions are planned for. (A resource never changes its class.)
"""

from __future__ import annotations

HEAD_COLUMNS = "h.revision as head, h.compacted_long, h.compacted_of"
RECORD_COLUMNS = (
    "revision, resource, namespace, name, uid, create_revision, version, previous_revision, operation, object,"
    " committed_at"
)

HEAD = f"select {HEAD_COLUMNS} from kubechronicle.head h"

SHORT_RESOURCES = "select resource from kubechronicle.resource_classes where class = 'short'"

# One argument per column of the batch, see rows.batch_arguments.
APPEND = (
    "select * from kubechronicle.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
    " $18, $19, $20, $21, $22, null)"
)

# $1 token of the server that claims to append alone (consistency.py).
CLAIM = "select head, compacted_long, compacted_of, claimed from kubechronicle.claim_sole($1)"

# $1 the same token, on another connection of that server.
CLAIMANT = "select set_config('kubechronicle.sole', $1, false)"

# True while a client holds the lock for shared appends (locks.py).
APPENDS_ARE_SHARED = "select kubechronicle.appends_are_shared()"

# True if a server holds a claim under the current postmaster.
CLAIMED = "select h.sole <> '' and h.sole_under = pg_postmaster_start_time() from kubechronicle.head h"

# $1 batch id. Returns a row if the fence was set. Waits for a transaction that has inserted the id and not ended.
# A clock that jumped back must not let retention prune the fence at once.
FENCE = (
    "insert into kubechronicle.batches (id, committed_at)"
    " select $1, greatest(clock_timestamp(), h.committed_at) from kubechronicle.head h"
    " on conflict do nothing returning id"
)

# $1 batch id.
BATCH = "select committed_at, first_revision, head, actual from kubechronicle.batches where id = $1"

# $1 first, $2 last revision.
BATCH_ROWS = (
    "select revision, create_revision, version from kubechronicle.log where revision between $1 and $2"
    " order by revision"
)

# $1 process id of a backend of our own role.
BACKEND_STATE = "select state from pg_stat_activity where pid = $1"

# $1 process id of a backend. True on a primary where it has gone: a standby does not tell about the primary's.
BACKEND_ENDED = """
select not pg_is_in_recovery() and pg_backend_pid() <> $1 and not exists (select from pg_stat_activity where pid = $1)
"""

# The columns of rows.identity.
IDENTITY_COLUMNS = "hash, resource, namespace, name, uid, version, committed_at"
_ROW = f"""
    select {IDENTITY_COLUMNS} from kubechronicle.log where revision = $1::bigint
    union all
    select {IDENTITY_COLUMNS} from kubechronicle.kept where revision = $1::bigint limit 1
"""

# $1 revision. The head, and the identity of a row.
IDENTITY = f"select {HEAD_COLUMNS}, c.* from kubechronicle.head h left join lateral ({_ROW}) c on true"

# $1 revisions.
IDENTITIES = f"""
select revision, {IDENTITY_COLUMNS} from kubechronicle.log where revision = any ($1::bigint[])
union all
select revision, {IDENTITY_COLUMNS} from kubechronicle.kept where revision = any ($1::bigint[])
"""

# $1 after, $2 limit. As READ, with the identity of the row at ``after``. For few rows, as it comes with each.
READ_FROM = f"""
select {HEAD_COLUMNS}, c.*, r.* from kubechronicle.head h left join lateral ({_ROW}) c on true
left join lateral (
    select {RECORD_COLUMNS} from kubechronicle.log
    where revision > $1::bigint and revision <= $1::bigint + $2::bigint order by revision) r on true
order by r.revision
"""

# $1 after, $2 limit. One index range: revisions are gapless, so the range is bounded on both sides.
READ = f"""
select {HEAD_COLUMNS}, r.* from kubechronicle.head h left join lateral (
    select {RECORD_COLUMNS} from kubechronicle.log
    where revision > $1::bigint and revision <= $1::bigint + $2::bigint order by revision) r on true
order by r.revision
"""

# $2 a revision. The end of a jump over it after a restore, or before the start of the log (integrity/jumps.py). A
# client that knows this revision knows changes that are lost, or those of another log.
_PASSED_OVER = """(select j.last from kubechronicle.jumps j where j.first <= $2::bigint and j.last > $2::bigint
    and (starts_with(j.about, '{{"jump":"restore"') or starts_with(j.about, '{{"jump":"start"'))) as passed_over"""
# $3 a revision. The end of any jump over it: nothing happened up to there.
_REACHED = """(select j.last from kubechronicle.jumps j
    where j.first <= $3::bigint and j.last > $3::bigint) as reached"""

# $1 resource, $2 after, $3 until, $4 limit, $5 namespace, $6 name (the last two only where the scope has them).
# Cost: the rows returned; with a namespace, the rows of the resource in the range.
_READ_RESOURCE = f"""
select {HEAD_COLUMNS}, r.*, p.*, {_PASSED_OVER}, {_REACHED} from kubechronicle.head h left join lateral (
    select {RECORD_COLUMNS} from {{log}}
    where resource = $1 and revision > $2::bigint and revision <= $3::bigint {{scope}}
    order by revision limit $4) r on true
left join lateral (
    select {RECORD_COLUMNS} from {{log}} where revision = r.previous_revision
    union all
    select {RECORD_COLUMNS} from kubechronicle.kept where revision = r.previous_revision limit 1) p
    on r.previous_revision > 0
order by r.revision
"""

# $1 resource, $2 namespace, $3 name, $4 revision. One index descent per partition until the newest row is found.
_GET_AT = f"""
select {HEAD_COLUMNS}, r.* from kubechronicle.head h left join lateral (
    select * from (
        (select {RECORD_COLUMNS} from {{log}}
         where resource = $1 and namespace = $2 and name = $3 and revision <= $4::bigint order by revision desc limit 1)
        union all
        (select {RECORD_COLUMNS} from kubechronicle.kept
         where resource = $1 and namespace = $2 and name = $3 and revision <= $4::bigint order by revision desc limit 1)
    ) newest order by revision desc limit 1) r on true
"""

# $1 resource, $2 revision, $3 and $4 namespace and name to begin after, $5 limit, $6 namespace.
# Every object of that revision still exists or was deleted since; deletions come from an index in key order. Cost: the
# objects returned, plus those created or deleted since in the same range of keys. Updates cost nothing.
_LIVE_AT = "resource = $1 and (namespace, name) > ($3, $4) and create_revision <= $2::bigint"
# Evaluated once for a statement. Most resources have no row copied forward, so each object saves a descent.
_HAS_KEPT = "(select exists (select from kubechronicle.kept where resource = $1))"
_GONE_SINCE = f"operation = 3 and {_LIVE_AT} and revision > $2::bigint"
_LIST_AT = f"""
with chosen as (
    select * from (
        (select namespace, name, revision as last, create_revision from kubechronicle.live
         where {_LIVE_AT} {{scope}} order by namespace, name limit $5)
        union all
        (select namespace, name, previous_revision, create_revision from {{log}}
         where {_GONE_SINCE} {{scope}} order by namespace, name limit $5)
    ) candidates order by namespace, name limit $5)
select {HEAD_COLUMNS}, c.last, r.*, {_PASSED_OVER} from kubechronicle.head h left join (
    chosen c left join lateral (
        select * from (
            select {RECORD_COLUMNS} from {{log}} where c.last <= $2 and revision = c.last
            union all
            select {RECORD_COLUMNS} from kubechronicle.kept where {_HAS_KEPT} and c.last <= $2 and revision = c.last
            union all
            (select {RECORD_COLUMNS} from {{log}}
             where c.last > $2 and resource = $1 and namespace = c.namespace and name = c.name
                and revision between c.create_revision and $2 order by revision desc limit 1)
            union all
            (select {RECORD_COLUMNS} from kubechronicle.kept
             where {_HAS_KEPT} and c.last > $2 and resource = $1 and namespace = c.namespace and name = c.name
                and revision between c.create_revision and $2 order by revision desc limit 1)
        ) found order by revision desc limit 1) r on true) on true
order by c.namespace, c.name
"""

# $1 resource, $2 revision, $3 and $4 namespace and name to begin after, $5 namespace. Two index ranges.
_COUNT_AT = f"""
select {HEAD_COLUMNS}, (select count(*) from kubechronicle.live where {_LIVE_AT} {{scope}})
    + (select count(*) from {{log}} where {_GONE_SINCE} {{scope}}) as objects
from kubechronicle.head h
"""

# $1 the resources of class 'short'. One index descent per live object, in revision order, which suits the disk.
_LOAD = f"""
select l.revision as live, r.* from (
    select revision from kubechronicle.live where {{scope}} order by revision) l
left join lateral (
    select {RECORD_COLUMNS} from {{log}} where revision = l.revision
    union all
    select {RECORD_COLUMNS} from kubechronicle.kept where revision = l.revision limit 1) r on true
"""
LOAD = {
    "short": _LOAD.format(log="kubechronicle.log_short", scope="resource = any ($1::text[])"),
    "long": _LOAD.format(log="kubechronicle.log_long", scope="resource <> all ($1::text[])"),
}

# Keeps partitions from being dropped under a snapshot that does not see the rows copied forward. Before the first
# query.
LOCK_LOG = "lock table kubechronicle.log in access share mode"

FIRST_REVISION_SINCE = "select kubechronicle.first_revision_since($1)"

# $1 revision. The first existing row at or above it.
MOMENT_OF = f"""
select {HEAD_COLUMNS}, coalesce(r.committed_at, h.committed_at) as committed_at
from kubechronicle.head h left join lateral (
    select committed_at from kubechronicle.log where revision >= $1::bigint and revision <= h.revision
    order by revision limit 1) r on true
"""


def log_table(retention_class: str) -> str:
    return f"kubechronicle.log_{retention_class}"


def read_resource(retention_class: str, *, namespace: bool, name: bool) -> str:
    scope = ("and namespace = $5 " if namespace else "") + ((f"and name = ${6 if namespace else 5}") if name else "")
    return _READ_RESOURCE.format(log=log_table(retention_class), scope=scope)


def get_at(retention_class: str) -> str:
    return _GET_AT.format(log=log_table(retention_class))


def list_at(retention_class: str, *, namespace: bool) -> str:
    return _LIST_AT.format(log=log_table(retention_class), scope="and namespace = $6" if namespace else "")


def count_at(retention_class: str, *, namespace: bool) -> str:
    return _COUNT_AT.format(log=log_table(retention_class), scope="and namespace = $5" if namespace else "")
