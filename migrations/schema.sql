-- The whole schema, which new databases get: the sum of the numbered migrations (a test compares the two).

create schema if not exists kubechronicle; -- an administrator may have made it for the user

-- The migrations applied to this database.
create table kubechronicle.migrations (
    number     int primary key,
    name       text not null,
    sha256     text not null,
    applied_at timestamptz not null default now(),
    serves_from int -- the oldest schema whose servers work on the schema after it; null: no older ones do
);

-- The revision log: its tables, and the one function that appends to it.
--
-- Invariants:
--   * Revisions are gapless and in commit order: append() locks the one row of state until it commits. So no revision
--     below r appears after revision r was read. (A sequence does not guarantee that.)
--   * A row of log is never updated, except by an erasure, which leaves a tombstone and an entry of the log. Retention
--     drops rows; their digests stay in tombstones.
--   * digest(r) = sha256 over every column of the row (see append; an empty reason and no cause are left out),
--     hash(r) = sha256(hash(r-1) || digest(r)), hash(0) = sha256(log_id as 16 bytes).

-- The state of the log beside its rows. Appending locks the one row, and does not change it: a row that each commit updates
-- collects dead versions for as long as anybody holds a snapshot (pg_dump, an analyst), and each commit passes all of them.
create table kubechronicle.state (
    one               boolean constraint state_pkey primary key default true constraint state_one_check check (one),
    log_id            uuid not null default gen_random_uuid(), -- identity of the log; the hash chain begins with it
    compacted_long    bigint not null default 0,               -- below it history may be gone
    partitioned_until bigint not null default 1,               -- an append that reaches it makes partitions first
    compacted_of      jsonb not null default '{}',             -- instead of compacted_long, by resource
    sole              text not null default '',                -- token of the sole appender; empty: none
    sole_under        timestamptz not null default '-infinity', -- start of the postmaster under which sole holds
    retention_clock   timestamptz                              -- the time by which retention last judged ages
) with (fillfactor = 10);

-- The newest revision is in the last row. One row per batch, only inserted; the older ones are deleted behind. The key
-- also rejects a second successor of a revision.
create table kubechronicle.heads (
    revision     bigint constraint heads_pkey primary key,
    hash         bytea not null,      -- of that revision
    committed_at timestamptz not null -- never less than before
);

create view kubechronicle.head as
select s.one, s.log_id, n.revision, n.hash, n.committed_at, s.compacted_long, s.partitioned_until, s.compacted_of, s.sole,
    s.sole_under
from kubechronicle.state s
cross join lateral (
    select h.revision, h.hash, h.committed_at from kubechronicle.heads h order by h.revision desc limit 1) n;

-- For restores, and for functions of version 0.1.0 that are under way: appends insert into heads themselves.
create function kubechronicle.update_head() returns trigger language plpgsql as $$
begin
    update kubechronicle.state set log_id = new.log_id, compacted_long = new.compacted_long, compacted_of = new.compacted_of,
        partitioned_until = new.partitioned_until, sole = new.sole, sole_under = new.sole_under;
    if (new.revision, new.hash, new.committed_at) is distinct from (old.revision, old.hash, old.committed_at) then
        delete from kubechronicle.heads h where h.revision >= new.revision;
        insert into kubechronicle.heads values (new.revision, new.hash, new.committed_at);
    end if;
    return new;
end $$;

create trigger update_head instead of update on kubechronicle.head
    for each row execute function kubechronicle.update_head();

insert into kubechronicle.state default values;
insert into kubechronicle.heads select 0, sha256(uuid_send(log_id)), 'epoch' from kubechronicle.state;

-- Delete old rows of heads. The range is bounded below, too: rows deleted before cost the next deletion as long as
-- somebody's snapshot keeps them.
create function kubechronicle.prune_heads(newest bigint) returns void language sql
begin atomic
    delete from kubechronicle.heads h where h.revision > newest - 4096 and h.revision <= newest - 1024;
end;

-- The time of a commit if the clocks of the database and of the server differ. A time in the future would stay in the log
-- for ever, so the earlier clock is right, unless the log is already more than a minute later.
create function kubechronicle.agreed_time(of_database timestamptz, of_server timestamptz, newest timestamptz)
returns timestamptz language sql immutable parallel safe
return greatest(newest, case when least(of_database, of_server) >= newest - interval '1 minute'
    then least(of_database, of_server) else greatest(of_database, of_server) end);

-- Retention drops whole partitions, so rows are partitioned by retention class. Resources not listed here are 'long'.
create table kubechronicle.resource_classes (
    resource text collate "C" primary key,
    class    text not null check (class in ('short', 'long'))
);

insert into kubechronicle.resource_classes values
    ('events', 'short'), ('events.events.k8s.io', 'short'), ('leases.coordination.k8s.io', 'short');

create table kubechronicle.retention_classes (
    class             text primary key,
    span              bigint not null,           -- revisions in the next partition
    partitioned_until bigint not null default 1, -- first revision of the next partition
    dropped_until     bigint not null default 1, -- partitions below it are gone
    to_archive        boolean not null default false -- true after a server was given a directory for archives
);

insert into kubechronicle.retention_classes (class, span) values ('long', 1000000), ('short', 100000);

-- One row per change. Unknown texts are empty, not null.
create table kubechronicle.log (
    revision          bigint not null,
    create_revision   bigint not null,   -- of the change that created the object
    version           bigint not null,   -- changes since then, beginning at 1
    previous_revision bigint not null,   -- of the row this one replaced; 0: the object did not exist
    committed_at      timestamptz not null,
    operation         smallint not null, -- 1 create, 2 update, 3 delete
    class             text not null,     -- retention class; decides the partition
    resource          text collate "C" not null,
    namespace         text collate "C" not null,
    name              text collate "C" not null,
    uid               text not null,
    user_name         text not null,
    user_uid          text not null,
    user_groups       text[] not null,
    user_extra        json,
    impersonator      text not null,
    verb              text not null,
    request_uri       text not null,
    user_agent        text not null,
    source_address    text not null,
    field_manager     text not null,
    audit_id          text not null,
    digest            bytea not null,
    hash              bytea not null,
    object            json not null,     -- json, not jsonb, which would change the bytes
    reason            text not null default '', -- of the change, as its client gave it
    cause             bigint not null default 0, -- the revision that this change is a consequence of; 0: none is recorded
    primary key (revision, class)
) partition by list (class);

do $$ begin
    alter table kubechronicle.log alter column object set compression lz4; -- a third of the default's CPU time
exception when feature_not_supported then null; end $$;

create index on kubechronicle.log (resource, namespace, name, revision);
create index on kubechronicle.log (resource, revision);
create index on kubechronicle.log (resource, revision) where operation = 3;
-- For lists of the past: later deletions in key order, from the index alone.
create index on kubechronicle.log (resource, namespace, name, create_revision, revision) include (previous_revision)
    where operation = 3;

-- For changes in a namespace, and by a user.
create index on kubechronicle.log (namespace, revision);
create index on kubechronicle.log (user_name, revision);
-- For the consequences of a change.
create index on kubechronicle.log (cause, revision) where cause <> 0;

-- "like" and not "partition of", which would lose the column settings; later partitions are made in the same way.
create table kubechronicle.log_long (like kubechronicle.log including defaults including constraints including compression)
    partition by range (revision);
create table kubechronicle.log_short (like kubechronicle.log including defaults including constraints including compression)
    partition by range (revision);
alter table kubechronicle.log attach partition kubechronicle.log_long for values in ('long');
alter table kubechronicle.log attach partition kubechronicle.log_short for values in ('short');

-- The last revision of each existing object. It is in the key, so that a change finds the row without the dead versions of
-- it, which somebody's snapshot may keep. The lock of state lets each object have one row.
create table kubechronicle.live (
    resource        text collate "C" not null,
    namespace       text collate "C" not null,
    name            text collate "C" not null,
    revision        bigint not null,
    create_revision bigint not null,
    version         bigint not null,
    primary key (resource, namespace, name, revision)
) with (fillfactor = 70);

-- The outcome of each batch, for a server whose connection broke before the answer. A row without first_revision is a
-- fence: that batch has not committed and, because of the primary key, never can. Rows are pruned after a day.
create table kubechronicle.batches (
    id             uuid primary key,
    committed_at   timestamptz not null,
    first_revision bigint,
    head           bigint,
    actual         bigint[] -- if a transaction was rejected: the actual revision of each change in the batch
);

create index on kubechronicle.batches (committed_at);

-- Each partition is attached well before its first row is committed. A commit is visible to queries an instant before other
-- backends hear that it has attached a partition; until then they read by plans without it.

-- The number of revisions before the end of the newest partition at which an append makes the next one. A server appends
-- so many in some seconds. It is less than the half at which retention makes it.
create function kubechronicle.spare_revisions(span bigint) returns bigint language sql immutable
return greatest(1, least(span / 8, 10000));

-- The revision from which on an append makes partitions.
create function kubechronicle.partitions_due() returns bigint language sql stable
return (select min(c.partitioned_until - kubechronicle.spare_revisions(c.span)) from kubechronicle.retention_classes c);

-- Make the next partition of a class: create, then attach, which blocks neither readers nor writers.
create function kubechronicle.make_partition(retention_class text) returns bigint language plpgsql as $$
declare
    c kubechronicle.retention_classes;
    parent text := 'log_' || retention_class;
    child text;
begin
    perform from kubechronicle.state for update; -- the order of locks is this row first, everywhere
    select * into strict c from kubechronicle.retention_classes where class = retention_class;
    child := format('%s_%s', parent, c.partitioned_until);
    execute format('create table kubechronicle.%I (like kubechronicle.%I including defaults including constraints '
        'including compression)', child, parent);
    execute format('alter table kubechronicle.%I attach partition kubechronicle.%I for values from (%s) to (%s)',
        parent, child, c.partitioned_until, c.partitioned_until + c.span);
    update kubechronicle.retention_classes set partitioned_until = c.partitioned_until + c.span
        where class = retention_class;
    update kubechronicle.state set partitioned_until = kubechronicle.partitions_due();
    return c.partitioned_until + c.span;
end $$;

select kubechronicle.make_partition('long'), kubechronicle.make_partition('short');

-- Make the partitions that are due at a revision. Retention normally makes them in advance; append() falls back on this.
create function kubechronicle.make_partitions_until(needed bigint) returns void language plpgsql as $$
declare
    behind text;
begin
    loop
        select c.class into behind from kubechronicle.retention_classes c
            where c.partitioned_until - kubechronicle.spare_revisions(c.span) <= needed limit 1;
        exit when not found;
        perform kubechronicle.make_partition(behind);
    end loop;
end $$;

create function kubechronicle.next_hash(state bytea, before bytea, digest bytea) returns bytea
language plpgsql immutable parallel unsafe as $$
begin
    return sha256(coalesce(state, before) || digest);
end $$;

-- As a window function: the hash of each row, from the hash before the first row and each row's digest.
create aggregate kubechronicle.chain(before bytea, digest bytea) (sfunc = kubechronicle.next_hash, stype = bytea);

-- Append a batch: arrays with one element per change. ``transactions``: the number of each change's transaction.
-- Returns one row: the new revisions (null: the transaction was rejected), and the revisions, create_revisions and
-- versions before. The settings make plans independent of statistics, which lag behind a growing log. (The cost of a
-- disabled seqscan would start the JIT compiler.)
create function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    reasons text[], causes bigint[], objects json[], server_clock timestamptz,
    out first bigint, out head bigint, out committed_at timestamptz,
    out revisions bigint[], out actual bigint[], out create_revisions bigint[], out versions bigint[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    s kubechronicle.state;
    h kubechronicle.heads;
    n constant int := cardinality(resources);
    alone boolean;
    fitting boolean;
    refused int[] := '{}';
    last_hash bytea;
begin
    if current_setting('synchronous_commit') = 'off' then -- an answer means durable, whatever the session says
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then -- the snapshot would be older than the lock
        raise exception 'appending needs the isolation level read committed' using errcode = 'active_sql_transaction';
    end if;
    select * into strict s from kubechronicle.state for update;
    -- A statement of its own, whose snapshot is newer than the lock.
    select * into strict h from kubechronicle.heads n order by n.revision desc limit 1;
    alone := s.sole <> '' and s.sole_under = pg_postmaster_start_time();
    if alone and s.sole <> coalesce(current_setting('kubechronicle.sole', true), '') then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    end if;
    committed_at := clock_timestamp();
    if abs(extract(epoch from statement_timestamp() - server_clock)) > 5 then
        committed_at := kubechronicle.agreed_time(committed_at, server_clock + (committed_at - statement_timestamp()), h.committed_at);
    end if;
    committed_at := greatest(h.committed_at, committed_at);

    select array_agg(coalesce(l.revision, 0)), array_agg(coalesce(l.create_revision, 0)),
           array_agg(coalesce(l.version, 0)), bool_and((u.operation = 1) = (u.expected = 0))
      into actual, create_revisions, versions, fitting
      from unnest(resources, namespaces, names, operations, append.expected)
          as u (resource, namespace, name, operation, expected)
      left join lateral (
          select * from kubechronicle.live l
          where l.resource = u.resource and l.namespace = u.namespace and l.name = u.name
          order by l.revision desc limit 1) l on true;
    if not fitting then
        raise exception 'what is created must be absent, and nothing else' using errcode = 'check_violation';
    end if;

    head := h.revision;
    if actual = expected then
        head := h.revision + n;
        revisions := array(select h.revision + i from generate_series(1, n) i);
    else
        for i in 1..n loop
            if actual[i] <> expected[i] then refused := refused || transactions[i]; end if;
        end loop;
        for i in 1..n loop
            if transactions[i] = any (refused) then
                revisions[i] := null;
            else
                head := head + 1;
                revisions[i] := head;
            end if;
        end loop;
    end if;
    first := h.revision + 1;
    insert into kubechronicle.batches values
        (batch, committed_at, first, head, case when cardinality(refused) > 0 then actual end);
    if head = h.revision then return; end if;
    if head >= s.partitioned_until then perform kubechronicle.make_partitions_until(head); end if;

    with change as (
        select u.*, case when u.operation = 1 then u.revision else u.created end as create_revision,
            case when u.operation = 1 then 1 else u.before + 1 end as version,
            coalesce((select c.class from kubechronicle.resource_classes c where c.resource = u.resource), 'long') as class
        from unnest(revisions, actual, create_revisions, versions, operations, resources, namespaces, names, uids,
            user_names, user_uids, append.user_groups, user_extras, impersonators, verbs, request_uris, user_agents,
            source_addresses, field_managers, audit_ids, reasons, causes, objects)
        as u (revision, previous_revision, created, before, operation, resource, namespace, name, uid,
            user_name, user_uid, groups, extra, impersonator, verb, request_uri, user_agent, source_address,
            field_manager, audit_id, reason, cause, object)
        where u.revision is not null
    ), digested as (
        -- record_send: the number of columns, then for each its type's oid, its length and its binary form. So no
        -- two different rows have the same encoding, and anyone can compute it without this database. A row without
        -- reason or cause has the digest of the time before there were any.
        select *, case when cause <> 0 then sha256(record_send(row(
            revision, create_revision, version, previous_revision, append.committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class, reason, cause)))
        when reason = '' then sha256(record_send(row(
            revision, create_revision, version, previous_revision, append.committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class)))
        else sha256(record_send(row(
            revision, create_revision, version, previous_revision, append.committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class, reason))) end as digest
        from change
    ), appended as (
        insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
            class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object, reason, cause)
        select revision, create_revision, version, previous_revision, append.committed_at, operation,
            class, resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest,
            kubechronicle.chain(h.hash, digest) over (order by revision rows unbounded preceding), object,
            reason, cause
        from digested d
        returning log.revision, log.hash
    )
    select a.hash into strict last_hash from appended a where a.revision = append.head;

    -- By the expected revision: so dead versions of a key, which a snapshot keeps, are never visited.
    if 3 = any (operations) then
        delete from kubechronicle.live l
        using unnest(revisions, operations, resources, namespaces, names, actual)
            u (revision, operation, resource, namespace, name, actual)
        where u.operation = 3 and u.revision is not null
            and l.resource = u.resource and l.namespace = u.namespace and l.name = u.name and l.revision = u.actual;
    end if;
    if 2 = any (operations) then
        update kubechronicle.live l set revision = u.revision, version = l.version + 1
        from unnest(revisions, operations, resources, namespaces, names, actual)
            u (revision, operation, resource, namespace, name, actual)
        where u.operation = 2 and u.revision is not null
            and l.resource = u.resource and l.namespace = u.namespace and l.name = u.name and l.revision = u.actual;
    end if;
    if 1 = any (operations) then
        insert into kubechronicle.live
        select u.resource, u.namespace, u.name, u.revision, u.revision, 1
        from unnest(revisions, operations, resources, namespaces, names) u (revision, operation, resource, namespace, name)
        where u.operation = 1 and u.revision is not null;
    end if;
    insert into kubechronicle.heads values (append.head, last_hash, append.committed_at);
    if append.head / 1024 <> h.revision / 1024 then perform kubechronicle.prune_heads(append.head); end if;
    if not alone and pg_notification_queue_usage() < 0.5 then -- see append_change
        perform pg_notify('kubechronicle', append.head::text); -- once per batch: per row it halves the throughput
    end if;
end $$;

-- The same for servers before schema 25 during an upgrade: without causes.
create function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    reasons text[], objects json[], server_clock timestamptz,
    out first bigint, out head bigint, out committed_at timestamptz,
    out revisions bigint[], out actual bigint[], out create_revisions bigint[], out versions bigint[]
) language sql as $$
    select a.first, a.head, a.committed_at, a.revisions, a.actual, a.create_revisions, a.versions
    from kubechronicle.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        array_fill(0::bigint, array[cardinality($5)]), $21, $22) a
$$;

-- The same for servers before schema 22 during an upgrade: without reasons.
create function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    objects json[], server_clock timestamptz,
    out first bigint, out head bigint, out committed_at timestamptz,
    out revisions bigint[], out actual bigint[], out create_revisions bigint[], out versions bigint[]
) language sql as $$
    select a.first, a.head, a.committed_at, a.revisions, a.actual, a.create_revisions, a.versions
    from kubechronicle.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
        array_fill(''::text, array[cardinality($5)]), $20, $21) a
$$;

-- The same for servers of version 0.1.0 during an upgrade: by the clock of the database alone.
create function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    objects json[],
    out first bigint, out head bigint, out committed_at timestamptz,
    out revisions bigint[], out actual bigint[], out create_revisions bigint[], out versions bigint[]
) language sql as $$
    select a.first, a.head, a.committed_at, a.revisions, a.actual, a.create_revisions, a.versions
    from kubechronicle.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
        null) a
$$;

-- Append one change: as append() with arrays of one element, at a third of the cost. A server with little load appends
-- mostly single changes, and their clients wait. ``class``: the retention class. Returns [head, committed_at in
-- microseconds since 1970, the revision before (rejected unless it is the expected one), create_revision, version]: an
-- array, because the description of a row would be sent with each call.
create function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, reason text, cause bigint,
    object json, server_clock timestamptz
) returns bigint[] language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    last_revision bigint;
    last_hash bytea;
    last_at timestamptz;
    partitioned_until bigint;
    sole text;
    sole_under timestamptz;
    alone boolean;
    head bigint;
    committed_at timestamptz;
    create_revision bigint;
    version bigint := 1;
    row_digest bytea;
    row_hash bytea;
begin
    if current_setting('synchronous_commit') = 'off' then -- an answer means durable, whatever the session says
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if (operation = 1) <> (expected = 0) then
        raise exception 'what is created must be absent, and nothing else' using errcode = 'check_violation';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then -- the snapshot would be older than the lock
        raise exception 'appending needs the isolation level read committed' using errcode = 'active_sql_transaction';
    end if;
    select s.partitioned_until, s.sole, s.sole_under into strict partitioned_until, sole, sole_under
      from kubechronicle.state s for update;
    select n.revision, n.hash, n.committed_at into strict last_revision, last_hash, last_at
      from kubechronicle.heads n order by n.revision desc limit 1; -- see append
    alone := sole <> '' and sole_under = pg_postmaster_start_time();
    if alone and sole <> coalesce(current_setting('kubechronicle.sole', true), '') then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    end if;
    committed_at := clock_timestamp();
    if abs(extract(epoch from statement_timestamp() - server_clock)) > 5 then
        committed_at := kubechronicle.agreed_time(committed_at, server_clock + (committed_at - statement_timestamp()), last_at);
    end if;
    committed_at := greatest(last_at, committed_at);
    head := last_revision + 1;
    create_revision := head;

    if operation = 1 then
        insert into kubechronicle.live select resource, namespace, name, head, head, 1
        where not exists (select from kubechronicle.live l where l.resource = append_change.resource
            and l.namespace = append_change.namespace and l.name = append_change.name);
    elsif operation = 2 then
        update kubechronicle.live l set revision = head, version = l.version + 1
        where l.resource = append_change.resource and l.namespace = append_change.namespace
            and l.name = append_change.name and l.revision = expected
        returning l.create_revision, l.version into create_revision, version;
    else
        delete from kubechronicle.live l
        where l.resource = append_change.resource and l.namespace = append_change.namespace
            and l.name = append_change.name and l.revision = expected
        returning l.create_revision, l.version + 1 into create_revision, version;
    end if;
    if not found then
        select l.revision into expected from kubechronicle.live l
        where l.resource = append_change.resource and l.namespace = append_change.namespace
            and l.name = append_change.name order by l.revision desc limit 1;
        expected := coalesce(expected, 0); -- from here on what was found
        insert into kubechronicle.batches values (batch, committed_at, head, last_revision, array[expected]);
        return array[last_revision, 0, expected, 0, 0];
    end if;
    insert into kubechronicle.batches values (batch, committed_at, head, head, null);
    if head >= partitioned_until then perform kubechronicle.make_partitions_until(head); end if;

    if cause <> 0 then -- see append
        row_digest := sha256(record_send(row(
            head, create_revision, version, expected, committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class, reason, cause)));
    elsif reason = '' then
        row_digest := sha256(record_send(row(
            head, create_revision, version, expected, committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class)));
    else
        row_digest := sha256(record_send(row(
            head, create_revision, version, expected, committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class, reason)));
    end if;
    row_hash := sha256(last_hash || row_digest);
    insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object, reason, cause)
    values (head, create_revision, version, expected, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, row_digest, row_hash, object, reason,
        cause);
    insert into kubechronicle.heads values (head, row_hash, committed_at);
    if head / 1024 <> last_revision / 1024 then perform kubechronicle.prune_heads(head); end if;
    -- Alone, nobody has to hear of it. With a full queue, which any role can fill, the commit would fail; others then poll.
    if not alone and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('kubechronicle', head::text);
    end if;
    return array[head, (extract(epoch from committed_at) * 1000000)::bigint, expected, create_revision, version];
end $$;

-- The same for servers before schema 25 during an upgrade: without a cause.
create function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, reason text, object json,
    server_clock timestamptz
) returns bigint[] language sql as $$
    select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, 0, $21, $22)
$$;

-- The same for servers before schema 22 during an upgrade: without a reason.
create function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json,
    server_clock timestamptz
) returns bigint[] language sql as $$
    select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, '', $20, $21)
$$;

-- The same for servers of version 0.1.0 during an upgrade.
create function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json
) returns bigint[] language sql as $$
    select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, null)
$$;

-- Append one change, for servers of the previous version during an upgrade.
create function kubechronicle.append_one(
    batch uuid, expected bigint, operation smallint, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json,
    out head bigint, out committed_at timestamptz, out actual bigint, out create_revision bigint, out version bigint
) language plpgsql as $$
#variable_conflict use_variable
declare
    answer bigint[];
begin
    answer := kubechronicle.append_change(batch, expected, operation,
        coalesce((select c.class from kubechronicle.resource_classes c where c.resource = append_one.resource), 'long'),
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, object);
    head := answer[1];
    committed_at := timestamptz 'epoch' + answer[2] * interval '1 microsecond';
    actual := answer[3];
    create_revision := answer[4];
    version := answer[5];
end $$;

-- The sole appender: a server that runs this database itself may claim to append alone, and then needs no query of the
-- head before each read (eventlog/sole_appender.py). A claim holds under one postmaster: it is void after a restart, and
-- in a copy of the database. append and append_change enforce it.

-- Locks that outlast a transaction are locks of these empty tables (eventlog/postgres/locks.py). Readers of the schema
-- chronicle have no rights in this schema; an advisory lock could be taken by every role that can connect.
create table kubechronicle.lock_maintenance (); -- exclusive: retention, compaction, erasure
create table kubechronicle.lock_appends ();     -- share: appends beside the sole appender; row exclusive: its claim

-- Return whether a client holds the lock for shared appends. If none does, hold it until the end of the transaction.
create function kubechronicle.appends_are_shared() returns boolean language plpgsql as $$
begin
    lock table kubechronicle.lock_appends in row exclusive mode nowait;
    return false;
exception when lock_not_available then
    return true;
end $$;

-- Claim to append alone, or renew the claim. Fails while another server holds a claim, and while the lock is held for
-- shared appends; then an own claim is released. Returns the head as of the claim; no other server moves it afterwards.
create function kubechronicle.claim_sole(token text,
    out head bigint, out compacted_long bigint, out compacted_of jsonb, out claimed boolean) language plpgsql as $$
declare
    s kubechronicle.state;
begin
    select * into strict s from kubechronicle.state for update;
    claimed := (s.sole in ('', token) or s.sole_under <> pg_postmaster_start_time())
        and not kubechronicle.appends_are_shared();
    if claimed then
        update kubechronicle.state set sole = token, sole_under = pg_postmaster_start_time();
    elsif s.sole = token then
        update kubechronicle.state set sole = '';
    end if;
    perform set_config('kubechronicle.sole', token, false); -- for the session
    head := (select max(n.revision) from kubechronicle.heads n);
    compacted_long := s.compacted_long;
    compacted_of := s.compacted_of;
end $$;

-- Retention: the data that stay when partitions are dropped.

-- Rows copied forward from dropped partitions: the newest row of each object there, unless it is a deletion. They keep
-- objects that have not changed for years, and the state as of every retained revision.
create table kubechronicle.kept (like kubechronicle.log including defaults including constraints including compression);
alter table kubechronicle.kept add primary key (revision);
create index on kubechronicle.kept (resource, namespace, name, revision);

-- The digests of rows of dropped partitions, to verify the hash chain from its beginning. One row per thousand revisions
-- and class; the two arrays are parallel.
create table kubechronicle.tombstones (
    thousand  bigint not null, -- revision / 1000
    class     text not null,
    revisions bigint[] not null,
    digests   bytea[] not null,
    primary key (thousand, class)
);

-- Append an entry of the log itself: an object that records an act on the log (eventlog/integrity/drops.py). ``spec``: JSON
-- without spaces. Creates the object, or replaces it.
create function kubechronicle.record_entry(plural text, kind text, name text, spec text, actor text, verb text)
returns void language plpgsql as $$
declare
    of_resource constant text := plural || '.history.kubechronicle.dev';
    existing kubechronicle.live;
    uid text := gen_random_uuid()::text;
    created timestamptz := clock_timestamp();
begin
    perform from kubechronicle.state for update;
    select * into existing from kubechronicle.live l
        where l.resource = of_resource and l.namespace = '' and l.name = record_entry.name
        order by l.revision desc limit 1;
    if existing.revision is not null then
        select r.uid, (r.object #>> '{metadata,creationTimestamp}')::timestamptz into strict uid, created
        from (select l.uid, l.object from kubechronicle.log l where l.revision = existing.revision union all
            select k.uid, k.object from kubechronicle.kept k where k.revision = existing.revision limit 1) r;
    end if;
    perform kubechronicle.append(gen_random_uuid(), array[0], array[coalesce(existing.revision, 0)],
        array[case when existing.revision is null then 1 else 2 end]::smallint[],
        array[of_resource], array[''], array[name], array[uid],
        array[actor], array[''], array['{}'], array[null]::text[], array[''], array[verb],
        array[''], array[current_setting('application_name')], array[''], array[''], array[''],
        array[format('{"apiVersion":"history.kubechronicle.dev/v1","kind":%s,"metadata":{"name":%s,"uid":%s,'
            '"creationTimestamp":"%s"},"spec":%s}', to_json(kind), to_json(name), to_json(uid),
            to_char(created at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), spec)::json], null);
end $$;

-- The drops that the log records.
create function kubechronicle.recorded_drops()
returns table (revision bigint, class text, first bigint, last bigint, kept text) language sql stable as $$
    select e.revision, r.object #>> '{spec,class}', (r.object #>> '{spec,first}')::bigint,
        (r.object #>> '{spec,last}')::bigint, r.object #>> '{spec,kept,digest}'
    from kubechronicle.live e cross join lateral (
        select l.object from kubechronicle.log l where l.revision = e.revision union all
        select k.object from kubechronicle.kept k where k.revision = e.revision limit 1) r
    where e.resource = 'drops.history.kubechronicle.dev'
$$;

-- The number of all rows copied forward, and their digest: one of digests, one for each thousand revisions, so that none is
-- computed of more bytes than a value may have.
create function kubechronicle.kept_state(out revisions bigint, out digest bytea) language sql stable as $$
    select coalesce(sum(t.rows), 0)::bigint, sha256(coalesce(string_agg(t.digest, ''::bytea order by t.thousand), ''))
    from (select k.revision / 1000 as thousand, count(*) as rows,
            sha256(string_agg(int8send(k.revision) || k.digest, ''::bytea order by k.revision)) as digest
        from kubechronicle.kept k group by 1) t
$$;

-- Record that the revisions of a class from ``first`` to ``last`` were dropped: with the digest of their tombstones, and
-- that of all rows copied forward, of which only a drop removes any.
create function kubechronicle.record_drop(retention_class text, first bigint, last bigint) returns void
language plpgsql as $$
declare
    rows bigint;
    digest bytea;
    kept record;
begin
    select coalesce(sum(t.rows), 0), sha256(coalesce(string_agg(t.digest, ''::bytea order by t.thousand), ''))
    into rows, digest
    from (select s.thousand, count(*) as rows, sha256(string_agg(int8send(r.revision) || r.digest, ''::bytea order by r.revision)) as digest
        from kubechronicle.tombstones s, unnest(s.revisions, s.digests) r (revision, digest)
        where s.class = retention_class and s.thousand between record_drop.first / 1000 and record_drop.last / 1000
            and r.revision between record_drop.first and record_drop.last
        group by s.thousand) t;
    select * into kept from kubechronicle.kept_state();
    perform kubechronicle.record_entry('drops', 'Drop', format('%s-%s', retention_class, first), format(
        '{"class":%s,"first":%s,"last":%s,"revisions":%s,"digest":"%s","kept":{"revisions":%s,"digest":"%s"},"databaseRole":%s}',
        to_json(retention_class), first, last, rows, encode(digest, 'hex'), kept.revisions, encode(kept.digest, 'hex'),
        to_json(current_user::text)), 'system:retention', 'drop');
end $$;

-- Record drops whose tombstones no entry records: those before this schema, and after a restore as of a revision before
-- their entries. Such a restore may also lack rows copied forward, which is recorded as a drop of nothing.
create function kubechronicle.record_earlier_drops() returns void language plpgsql as $$
declare
    classes text[];
    firsts bigint[];
    lasts bigint[];
    newest bigint;
begin
    -- Gathered first: an entry may need a new partition, which cannot be made under a query that reads the log.
    select array_agg(u.class order by u.class), array_agg(u.first order by u.class), array_agg(u.last order by u.class)
    into classes, firsts, lasts
    from (select t.class, min(r.revision) as first, max(r.revision) as last
        from kubechronicle.tombstones t, unnest(t.revisions) r (revision)
        where not exists (select from kubechronicle.jumps j where r.revision between j.first and j.last)
            and r.revision > coalesce((select max(d.last) from kubechronicle.recorded_drops() d where d.class = t.class), 0)
        group by t.class) u;
    for i in 1..coalesce(cardinality(classes), 0) loop
        perform kubechronicle.record_drop(classes[i], firsts[i], lasts[i]);
    end loop;
    if (select s.digest from kubechronicle.kept_state() s) <> (select decode(d.kept, 'hex')
            from kubechronicle.recorded_drops() d order by d.revision desc limit 1) then
        newest := (select h.revision from kubechronicle.head h);
        perform kubechronicle.record_drop('kept-' || newest, 1, 1);
    end if;
    if (select coalesce(array_agg(c.resource order by c.resource), '{}') from kubechronicle.confidential_resources c) <>
            coalesce((select array(select json_array_elements_text(r.object #> '{spec,resources}')) from kubechronicle.live e
                cross join lateral (
                    select l.object from kubechronicle.log l where l.revision = e.revision union all
                    select k.object from kubechronicle.kept k where k.revision = e.revision limit 1) r
                where e.resource = 'confidentialresources.history.kubechronicle.dev'), array['secrets']) then
        perform kubechronicle.record_confidential('system:apiserver');
    end if;
end $$;

-- First half of dropping a partition, in one transaction: copy the needed rows forward, and keep the digests. Until the
-- partition is detached, readers see a copied row twice, which is harmless: every query takes the newest row of a key and
-- one row per revision. A repetition changes nothing.
create function kubechronicle.copy_forward(partition regclass, retention_class text) returns void language plpgsql as $$
declare
    edges text[];
begin
    execute format('delete from kubechronicle.kept k where exists (select from %s p where p.resource = k.resource '
        'and p.namespace = k.namespace and p.name = k.name)', partition);
    execute format('insert into kubechronicle.kept select * from (select distinct on (resource, namespace, name) * '
        'from %s order by resource, namespace, name, revision desc) newest where operation <> 3', partition);
    execute format('insert into kubechronicle.tombstones as t select revision / 1000, %L, '
        'array_agg(revision order by revision), array_agg(digest order by revision) from %s group by revision / 1000 '
        'on conflict (thousand, class) do update set '
        'revisions = case when t.revisions @> excluded.revisions then t.revisions else t.revisions || excluded.revisions end, '
        'digests = case when t.revisions @> excluded.revisions then t.digests else t.digests || excluded.digests end',
        retention_class, partition);
    execute format('select array[min(revision), max(revision)] from %s', partition) into edges;
    if edges[1] is null or exists (select from kubechronicle.recorded_drops() d
            where d.class = retention_class and edges[1]::bigint between d.first and d.last) then
        return; -- nothing was dropped, or it is recorded
    end if;
    select array[coalesce((regexp_match(p.bounds, 'FROM \(''(\d+)'))[1], edges[1]),
        coalesce(((regexp_match(p.bounds, 'TO \(''(\d+)'))[1]::bigint - 1)::text, edges[2])] into edges
    from (select pg_get_expr(c.relpartbound, c.oid) as bounds from pg_class c where c.oid = partition) p;
    perform kubechronicle.record_drop(retention_class, edges[1]::bigint, edges[2]::bigint);
end $$;

-- The revision below which no resource has history.
create function kubechronicle.oldest_mark() returns bigint language sql stable
return (select least(compacted_long, (select min(value::bigint) from jsonb_each_text(compacted_of)))
    from kubechronicle.state);

-- The moves of marks: by whom, when and why, and the marks after it. Each is chained to the one before, and to the newest
-- revision of the log at that time (eventlog/integrity/marks.py). So nobody hides history by raising a mark unseen.
create table kubechronicle.mark_moves (
    number         bigint primary key,
    moved_at       timestamptz not null,
    actor          text not null,
    role           text not null,
    reason         text not null,
    compacted_long bigint not null,
    compacted_of   text not null,   -- JSON
    revision       bigint not null, -- the newest one of the log
    revision_hash  bytea not null,
    hash           bytea not null   -- sha256(hash of the move before || sha256(the other columns))
);

-- Record the present marks, unless the newest move has them.
create function kubechronicle.record_marks(actor text, reason text) returns void language plpgsql as $$
declare
    s kubechronicle.state;
    h kubechronicle.heads;
    last kubechronicle.mark_moves;
    next_number bigint;
    at timestamptz := clock_timestamp();
begin
    select * into strict s from kubechronicle.state for update;
    select * into strict h from kubechronicle.heads n order by n.revision desc limit 1;
    select * into last from kubechronicle.mark_moves m order by m.number desc limit 1;
    if s.compacted_long = coalesce(last.compacted_long, 0) and s.compacted_of::text = coalesce(last.compacted_of, '{}') then
        return;
    end if;
    next_number := coalesce(last.number, 0) + 1;
    insert into kubechronicle.mark_moves values (next_number, at, record_marks.actor, current_user::text,
        record_marks.reason, s.compacted_long, s.compacted_of::text, h.revision, h.hash,
        sha256(coalesce(last.hash, ''::bytea) || sha256(record_send(row(next_number, at, record_marks.actor,
            current_user::text, record_marks.reason, s.compacted_long, s.compacted_of::text, h.revision, h.hash)))));
end $$;

-- The legal holds that are in force (ops/maintenance/hold.py): objects of the log itself. Neither retention nor erasure
-- takes what they cover.
create function kubechronicle.holds()
returns table (hold text, revision bigint, resource text, namespace text, name text, reason text, by text, selector text)
language sql stable as $$
    select r.name, e.revision, r.object #>> '{spec,resource}', r.object #>> '{spec,namespace}', r.object #>> '{spec,name}',
        r.object #>> '{spec,reason}', r.object #>> '{spec,by}', coalesce(r.object #>> '{spec,selector}', '')
    from kubechronicle.live e cross join lateral (
        select l.name, l.object from kubechronicle.log l where l.revision = e.revision union all
        select k.name, k.object from kubechronicle.kept k where k.revision = e.revision limit 1) r
    where e.resource = 'holds.history.kubechronicle.dev' and r.object #>> '{spec,released}' = 'false'
$$;

-- Move the marks (compacted revisions): ``of`` has those of single resources, ``rest`` is that of all others. No mark goes
-- back, nor above the newest revision. A new resource in ``of`` starts at the mark of the others. A resource no longer in
-- ``of`` keeps its mark until that of the others has reached it. The mark of a resource under a legal hold stays. The move
-- is recorded.
create function kubechronicle.move_marks(rest bigint, of jsonb, actor text, reason text) returns void language plpgsql as $$
declare
    held text[];
begin
    perform from kubechronicle.state for update;
    -- Under the lock, as a hold may have begun while this waited for it.
    held := array(select distinct h.resource from kubechronicle.holds() h);
    if '*' = any (held) then
        return;
    end if;
    update kubechronicle.state s set
        compacted_long = greatest(s.compacted_long, least(rest, h.revision)),
        compacted_of = (
            select coalesce(jsonb_object_agg(resource, mark), '{}') from (
                select coalesce(n.key, o.key, u.key) as resource, n.key is not null or u.key is not null as named,
                    case when u.key is not null then coalesce(o.value::bigint, s.compacted_long)
                    else greatest(coalesce(o.value::bigint, s.compacted_long), least(coalesce(n.value::bigint, 0), h.revision))
                    end as mark
                from jsonb_each_text(s.compacted_of) o full join jsonb_each_text(of) n on n.key = o.key
                full join unnest(held) u (key) on u.key = coalesce(n.key, o.key)) m
            where m.named or m.mark > greatest(s.compacted_long, least(rest, h.revision)))
    from (select max(n.revision) as revision from kubechronicle.heads n) h;
    perform kubechronicle.record_marks(actor, reason);
end $$;

-- The same for servers before schema 26 during an upgrade.
create function kubechronicle.move_marks(rest bigint, of jsonb) returns void language plpgsql as $$
begin
    perform kubechronicle.move_marks(rest, of, current_setting('application_name'), 'retention');
end $$;

-- The time by which ages are judged. A clock of the database that jumps forward must not forget history: so it is at most
-- the newest commit, by which server and database agreed, and goes on by at most ``step`` in a call.
create function kubechronicle.retention_time(step interval) returns timestamptz language plpgsql as $$
declare
    reached timestamptz;
begin
    select least(clock_timestamp(), h.committed_at, s.retention_clock + step) into reached
    from kubechronicle.state s cross join kubechronicle.head h;
    update kubechronicle.state s set retention_clock = reached where s.retention_clock is null or s.retention_clock < reached;
    return reached;
end $$;

-- The first revision committed at or after a moment; if there is none, the newest + 1. committed_at never decreases, so
-- bisection finds it without an index.
create function kubechronicle.first_revision_since(moment timestamptz) returns bigint
language plpgsql stable as $$
declare
    low bigint;
    high bigint;
    middle bigint;
    found_at timestamptz;
begin
    select kubechronicle.oldest_mark() + 1, revision + 1 into low, high from kubechronicle.head;
    while low < high loop
        middle := (low + high) / 2;
        -- rows may be gone, so the nearest row that is there speaks for the middle
        select l.committed_at into found_at from kubechronicle.log l
            where l.revision >= middle and l.revision < high order by l.revision limit 1;
        if found and found_at < moment then low := middle + 1; else high := middle; end if;
    end loop;
    return low;
end $$;

-- The newest revision committed at a moment or before. The moment is a time, or an age by the clock of the commit times.
-- No revision: the moment is in the future, or before the retained history. Not ``known``: when the revision after it
-- was committed is not known.
create function kubechronicle.moment_at(asked timestamptz, ago interval, server_clock timestamptz,
    out revision bigint, out moment timestamptz, out clock timestamptz, out known boolean) language plpgsql as $$
declare
    h kubechronicle.head;
    oldest bigint;
begin
    known := true;
    select * into strict h from kubechronicle.head;
    clock := clock_timestamp();
    if abs(extract(epoch from clock - server_clock)) > 5 then
        clock := kubechronicle.agreed_time(clock, server_clock, h.committed_at);
    elsif h.committed_at > clock and h.committed_at <= clock + interval '1 minute' then
        clock := h.committed_at; -- it went back a little
    end if;
    moment := coalesce(asked, clock - ago);
    if moment > clock then return; end if;
    if h.committed_at <= moment and moment > clock - interval '1 minute' then
        -- What is being appended just now may be stamped with an earlier time than this: the answer waits for it, so
        -- that it is the same when asked again. Nobody waits for this transaction to be on disk.
        perform set_config('synchronous_commit', 'off', true);
        perform from kubechronicle.state for key share;
    end if;
    oldest := kubechronicle.oldest_mark();
    revision := kubechronicle.first_revision_since(moment + interval '1 microsecond') - 1;
    -- While both clocks were wrong, the log got times of the future. When the changes since then happened is not known.
    if h.committed_at > clock + interval '1 minute' and revision < h.revision then
        known := coalesce((select l.committed_at <= clock from kubechronicle.log l
            where l.revision > moment_at.revision and l.revision <= h.revision order by l.revision limit 1), false);
    end if;
    -- Of the oldest mark the state can still be read, but since when it was so only its own row tells.
    if revision <= oldest and not exists (select from kubechronicle.log l
            where l.revision = oldest and l.committed_at <= moment) then
        revision := null;
    end if;
end $$;

-- The same for servers of version 0.1.0 during an upgrade.
create function kubechronicle.moment_at(asked timestamptz, ago interval,
    out revision bigint, out moment timestamptz, out clock timestamptz) language sql as $$
    select m.revision, m.moment, m.clock from kubechronicle.moment_at($1, $2, null) m
$$;

-- Erasures: data removed from rows as required by law; the rest still verifies (eventlog/integrity/erasures.py).

-- Tombstones: per row and erasure, the digests of the row before and after. An erasure is an object of the log, with the
-- digest of all its tombstones. So every added or removed row here is detected.
create table kubechronicle.erased (
    revision bigint not null,
    erasure  uuid not null,  -- the name of that object
    was      bytea not null,
    remains  bytea not null,
    primary key (revision, erasure)
);
create index on kubechronicle.erased (erasure, revision);

-- The archives of partitions, so that an erasure can name those that may hold more data to erase.
create table kubechronicle.archived (
    file        text primary key,
    class       text not null,
    first       bigint not null, -- revisions of its rows
    last        bigint not null,
    archived_at timestamptz not null default now()
);

-- True if only a tombstone is left of the object.
create function kubechronicle.is_erased(object json) returns boolean language sql immutable strict parallel safe
return starts_with(object::text, '{"erased":');

-- True if the object is stored as ciphertext (eventlog/encryption/stored_form.py).
create function kubechronicle.is_encrypted(object json) returns boolean language sql immutable strict parallel safe
return starts_with(object::text, '{"encrypted":');

-- True if there is no object to show.
create function kubechronicle.is_withheld(object json) returns boolean language sql immutable strict parallel safe
return starts_with(object::text, '{"encrypted":') or starts_with(object::text, '{"erased":');

-- The provider and the name of the key that encrypted the object; null for plaintext.
create function kubechronicle.encryption_of(object json) returns text language sql immutable strict parallel safe
return case when starts_with(object::text, '{"encrypted":') then object ->> 'encrypted' end;

-- History for analysts: the schema chronicle. Its views and functions read the log with the rights of its owner, and hide
-- the contents of confidential resources. docs/sql.md describes them; columns may be added, but not changed.
--
-- Invariants:
--   * Contents of confidential resources never leave a view or function: values computed from them are null.
--   * Views are security barriers, and functions that read the log have a fixed search_path. So no operator or function
--     of the caller sees a row or a value before it is masked.
--   * No row at or below a resource's mark is returned, even if it is still stored.

-- Only the fact that these resources changed is shown, for changes of any age.
create table kubechronicle.confidential_resources (
    resource text collate "C" primary key
);

insert into kubechronicle.confidential_resources values ('secrets');

-- Record the confidential resources.
create function kubechronicle.record_confidential(actor text) returns void language sql as $$
    select kubechronicle.record_entry('confidentialresources', 'ConfidentialResources', 'sql', format(
        '{"resources":%s,"databaseRole":%s}',
        coalesce((select replace(json_agg(c.resource order by c.resource)::text, ' ', '')
            from kubechronicle.confidential_resources c), '[]'),
        to_json(current_user::text)), actor, 'update')
$$;

-- Change the confidential resources. The log records the whole list: so `verify` detects that somebody else changed it.
create function kubechronicle.change_confidential(added text[], removed text[], actor text) returns void
language plpgsql as $$
declare
    before text[];
    after text[];
begin
    perform from kubechronicle.state for update;
    select coalesce(array_agg(resource order by resource), '{}') into before from kubechronicle.confidential_resources;
    insert into kubechronicle.confidential_resources select distinct unnest(added) on conflict do nothing;
    delete from kubechronicle.confidential_resources where resource = any (removed);
    select coalesce(array_agg(resource order by resource), '{}') into after from kubechronicle.confidential_resources;
    if before <> after then
        perform kubechronicle.record_confidential(actor);
    end if;
end $$;

create schema chronicle;

-- An object as jsonb. jsonb cannot hold the character NUL, which becomes U+FFFD.
create function kubechronicle.readable(object json) returns jsonb language sql immutable strict parallel safe
return case when strpos(object::text, '\u0000') = 0 then object::jsonb
    else regexp_replace(object::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb end;

-- The API group: "apps" of "deployments.apps", "" (the core group) of "pods".
create function kubechronicle.group_of(resource text) returns text language sql immutable strict parallel safe
return case when strpos(resource, '.') = 0 then '' else substr(resource, strpos(resource, '.') + 1) end;

-- The text of apiVersion or kind, with which an object begins.
create function kubechronicle.member(object json, member text) returns text language sql immutable strict parallel safe
return substring(left(object::text, 1000) from '"' || member || '":"([^"]*)"');

create function kubechronicle.operation_name(operation smallint) returns text language sql immutable strict parallel safe
return (array['create', 'update', 'delete'])[operation];

-- The differences of two objects, by JSON pointer (RFC 6901): {"/spec/replicas": {"from": 3, "to": 0}}. "from" or "to" is
-- missing if the value is. Lists of equal length are compared item by item, others as a whole. Managed fields are left
-- out: the log itself records the author of each change.
create function chronicle.difference(before jsonb, after jsonb, at text default '', depth int default 0) returns jsonb
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    found jsonb := '{}';
    part record;
begin
    if before is not distinct from after then
        return found;
    elsif depth < 50 and jsonb_typeof(before) = 'object' and jsonb_typeof(after) = 'object' then
        for part in
            select coalesce(b.key, a.key) as key, b.value as was, a.value as is_now
            from jsonb_each(before) b full join jsonb_each(after) a on a.key = b.key
            where b.value is distinct from a.value and not (at = '/metadata' and coalesce(b.key, a.key) = 'managedFields')
        loop
            found := found || chronicle.difference(part.was, part.is_now,
                at || '/' || replace(replace(part.key, '~', '~0'), '/', '~1'), depth + 1);
        end loop;
        return found;
    elsif depth < 50 and jsonb_typeof(before) = 'array' and jsonb_typeof(after) = 'array'
            and jsonb_array_length(before) = jsonb_array_length(after) then
        for part in
            select b.n, b.value as was, a.value as is_now
            from jsonb_array_elements(before) with ordinality b (value, n)
            join jsonb_array_elements(after) with ordinality a (value, n) on a.n = b.n
            where b.value is distinct from a.value
        loop
            found := found || chronicle.difference(part.was, part.is_now, at || '/' || part.n - 1, depth + 1);
        end loop;
        return found;
    end if;
    return jsonb_build_object(at, case when before is null then '{}' else jsonb_build_object('from', before) end
        || case when after is null then '{}' else jsonb_build_object('to', after) end);
end $$;

-- All changes with history.
create view chronicle.changes with (security_barrier) as
select l.revision, l.committed_at, kubechronicle.operation_name(l.operation) as operation,
    kubechronicle.group_of(l.resource) as api_group, l.resource,
    kubechronicle.member(l.object, 'apiVersion') as api_version, kubechronicle.member(l.object, 'kind') as kind,
    l.namespace, l.name, l.uid, l.create_revision, l.version, nullif(l.previous_revision, 0) as previous_revision,
    l.user_name, l.user_uid, l.user_groups, l.user_extra::jsonb as user_extra, l.impersonator, l.verb, l.request_uri,
    l.user_agent, l.source_address, l.field_manager, l.audit_id,
    l.resource in (select c.resource from kubechronicle.confidential_resources c)
        or kubechronicle.is_encrypted(l.object) as confidential,
    case when l.resource not in (select c.resource from kubechronicle.confidential_resources c)
            and not kubechronicle.is_withheld(l.object)
        then kubechronicle.readable(l.object) end as object,
    kubechronicle.is_erased(l.object) as erased, kubechronicle.encryption_of(l.object) as encryption, l.reason,
    nullif(l.cause, 0) as cause
from kubechronicle.log l cross join kubechronicle.state h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long)
    and l.resource <> 'nodeports.kubechronicle';

-- The same for people: user, action and object, with the changed fields.
create view chronicle.who_did_what with (security_barrier) as
select l.revision, l.committed_at, l.user_name as who, nullif(l.impersonator, '') as really,
    case l.operation when 1 then 'created' when 2 then 'updated' else 'deleted' end as did,
    l.resource, l.namespace, l.name, l.verb, l.user_agent, l.source_address,
    case when l.operation = 2 and l.resource not in (select c.resource from kubechronicle.confidential_resources c)
            and not kubechronicle.is_withheld(l.object) then (
        select array(select * from jsonb_object_keys(
            chronicle.difference(kubechronicle.readable(b.object), kubechronicle.readable(l.object))))
        from (
            select p.object from kubechronicle.log p where p.revision = l.previous_revision
            union all
            select k.object from kubechronicle.kept k where k.revision = l.previous_revision limit 1) b
        where not kubechronicle.is_withheld(b.object))
    end as changed,
    kubechronicle.is_erased(l.object) as erased, nullif(l.reason, '') as reason, nullif(l.cause, 0) as cause
from kubechronicle.log l cross join kubechronicle.state h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long)
    and l.resource <> 'nodeports.kubechronicle';

-- All erasures, with their reasons. They are kept as long as the log.
create view chronicle.erasures with (security_barrier) as
select r.revision, r.committed_at, r.name as erasure, s.spec ->> 'what' as what, s.spec #>> '{object,resource}' as resource,
    s.spec #>> '{object,namespace}' as namespace, s.spec #>> '{object,name}' as name, s.spec #>> '{object,uid}' as uid,
    (s.spec ->> 'revisions')::bigint as revisions, (s.spec ->> 'firstRevision')::bigint as first_revision,
    (s.spec ->> 'lastRevision')::bigint as last_revision, s.spec ->> 'reason' as reason, s.spec ->> 'by' as by,
    s.spec ->> 'osUser' as os_user, s.spec ->> 'databaseRole' as database_role
from kubechronicle.live e cross join lateral (
    select l.revision, l.committed_at, l.name, l.object from kubechronicle.log l where l.revision = e.revision
    union all
    select k.revision, k.committed_at, k.name, k.object from kubechronicle.kept k where k.revision = e.revision limit 1) r
cross join lateral (select r.object::jsonb -> 'spec' as spec offset 0) s
where e.resource = 'erasures.history.kubechronicle.dev';

-- The tags that exist: names for revisions, which are usable as moments in the API. They keep no history.
create view chronicle.tags with (security_barrier) as
select r.name as tag, (s.spec ->> 'revision')::bigint as revision, (s.spec ->> 'time')::timestamptz as moment,
    s.spec ->> 'user' as user_name, s.spec ->> 'reason' as reason
from kubechronicle.live e cross join lateral (
    select l.name, l.object from kubechronicle.log l where l.revision = e.revision
    union all
    select k.name, k.object from kubechronicle.kept k where k.revision = e.revision limit 1) r
cross join lateral (select kubechronicle.readable(r.object) -> 'spec' as spec offset 0) s
where e.resource = 'tags.history.kubechronicle.dev' and not kubechronicle.is_withheld(r.object)
    and e.resource not in (select c.resource from kubechronicle.confidential_resources c);

-- The newest revision at a time. A time in the future or before the retained history is an error.
create function chronicle.revision_at(moment timestamptz) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    found bigint;
    oldest bigint;
begin
    if moment > clock_timestamp() then
        raise exception '% is in the future', moment using errcode = 'invalid_parameter_value';
    end if;
    found := kubechronicle.first_revision_since(moment + interval '1 microsecond') - 1;
    oldest := kubechronicle.oldest_mark();
    if found <= oldest and not exists (select from kubechronicle.log l
            where l.revision = oldest and l.committed_at <= moment) then
        raise exception 'history of % is not kept', moment using errcode = 'no_data_found',
            hint = 'select min(committed_at) from chronicle.changes tells where history begins';
    end if;
    return found;
end $$;

-- All objects as of a revision, or those of one resource or one namespace. Resources whose history does not reach back to
-- the revision are left out with a notice; if such a resource was requested, it is an error.
create function chronicle.objects_at(at bigint, of_resource text default null, in_namespace text default null)
returns table (api_group text, resource text, api_version text, kind text, namespace text, name text, uid text,
    revision bigint, create_revision bigint, version bigint, changed_at timestamptz, changed_by text,
    confidential boolean, object jsonb, erased boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_custom_plan as $$
declare
    h kubechronicle.head;
    gone text[];
    mark bigint;
begin
    select * into strict h from kubechronicle.head;
    if at > h.revision then
        raise exception 'revision % is above the newest revision %', at, h.revision using errcode = 'invalid_parameter_value';
    end if;
    mark := coalesce((h.compacted_of ->> of_resource)::bigint, h.compacted_long);
    gone := array(select m.key from jsonb_each_text(h.compacted_of) m where m.value::bigint > at);
    if (of_resource is not null or gone = '{}') and at < mark or at < kubechronicle.oldest_mark() then
        raise exception 'revision % has been compacted (history begins at revision %)', at, mark
            using errcode = 'no_data_found';
    elsif of_resource is null and at < h.compacted_long then
        raise notice 'at revision % there is history of % alone', at, array_to_string(array(
            select m.key from jsonb_each_text(h.compacted_of) m where m.value::bigint <= at), ', ');
    elsif of_resource is null and gone <> '{}' then
        raise notice 'at revision % there is no history of %', at, array_to_string(gone, ', ');
    end if;
    return query
    with chosen as ( -- whatever existed then exists still, or was deleted since
        select l.resource, l.namespace, l.name, l.revision as last, l.create_revision from kubechronicle.live l
        where l.create_revision <= at and (of_resource is null or l.resource = of_resource)
            and (in_namespace is null or l.namespace = in_namespace)
        union all
        select d.resource, d.namespace, d.name, d.previous_revision, d.create_revision from kubechronicle.log d
        where d.operation = 3 and d.revision > at and d.create_revision <= at
            and (of_resource is null or d.resource = of_resource) and (in_namespace is null or d.namespace = in_namespace))
    select kubechronicle.group_of(r.resource), r.resource, kubechronicle.member(r.object, 'apiVersion'),
        kubechronicle.member(r.object, 'kind'), r.namespace, r.name, r.uid, r.revision, r.create_revision, r.version,
        r.committed_at, r.user_name, s.secret,
        case when not s.secret and not s.gone then kubechronicle.readable(r.object) end, s.gone
    from chosen c cross join lateral (
        select * from (
            select * from kubechronicle.log x where c.last <= at and x.revision = c.last
            union all
            select * from kubechronicle.kept x where c.last <= at and x.revision = c.last
            union all
            (select * from kubechronicle.log x where c.last > at and x.resource = c.resource
                and x.namespace = c.namespace and x.name = c.name and x.revision between c.create_revision and at
             order by x.revision desc limit 1)
            union all
            (select * from kubechronicle.kept x where c.last > at and x.resource = c.resource
                and x.namespace = c.namespace and x.name = c.name and x.revision between c.create_revision and at
             order by x.revision desc limit 1)) found
        order by found.revision desc limit 1) r
    cross join lateral (select r.resource in (select f.resource from kubechronicle.confidential_resources f)
            or kubechronicle.is_encrypted(r.object) as secret,
        kubechronicle.is_erased(r.object) as gone) s
    where at >= coalesce((h.compacted_of ->> r.resource)::bigint, h.compacted_long)
    order by r.resource, r.namespace, r.name;
end $$;

create function chronicle.objects_at(at timestamptz, of_resource text default null, in_namespace text default null)
returns table (api_group text, resource text, api_version text, kind text, namespace text, name text, uid text,
    revision bigint, create_revision bigint, version bigint, changed_at timestamptz, changed_by text,
    confidential boolean, object jsonb, erased boolean)
language sql stable
begin atomic
    select * from chronicle.objects_at(chronicle.revision_at(at), of_resource, in_namespace);
end;

-- All changes with history of the objects of one name, oldest first, each with its differences.
create function chronicle.object_history(of_resource text, in_namespace text, of_name text)
returns table (revision bigint, committed_at timestamptz, operation text, uid text, version bigint, user_name text,
    verb text, user_agent text, source_address text, field_manager text, confidential boolean, changed text[], diff jsonb,
    object jsonb, erased boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
begin atomic
    select l.revision, l.committed_at, kubechronicle.operation_name(l.operation), l.uid, l.version, l.user_name, l.verb,
        l.user_agent, l.source_address, l.field_manager, s.secret, array(select * from jsonb_object_keys(d.diff)), d.diff,
        case when not s.secret and not kubechronicle.is_erased(l.object) then kubechronicle.readable(l.object) end,
        kubechronicle.is_erased(l.object)
    from kubechronicle.log l cross join kubechronicle.state h
    cross join lateral (select of_resource in (select c.resource from kubechronicle.confidential_resources c)
            or kubechronicle.is_encrypted(l.object) as secret offset 0) s
    left join lateral (
        select chronicle.difference(kubechronicle.readable(b.object), kubechronicle.readable(l.object)) as diff from (
            select p.object from kubechronicle.log p where p.revision = l.previous_revision
            union all
            select k.object from kubechronicle.kept k where k.revision = l.previous_revision limit 1) b
        where l.operation = 2 and not s.secret and not kubechronicle.is_erased(l.object)
            and not kubechronicle.is_withheld(b.object) offset 0) d on true
    where l.resource = of_resource and l.namespace = in_namespace and l.name = of_name
        and l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long)
    order by l.revision;
end;

-- Recorded reads: who got, listed or watched which objects, and when. They are no part of the hash chain and hold no
-- contents. A server writes them in batches, some time after the answer; a crash loses the last of them.
--
-- Partitioned by week, so that retention drops whole partitions. A row in no week's partition waits in the default one.
create table kubechronicle.reads (
    at             timestamptz not null,
    id             bigint generated always as identity,
    revision       bigint not null,           -- the newest revision that the server had applied
    resource       text collate "C" not null,
    subresource    text not null,
    namespace      text collate "C" not null, -- empty: of the whole cluster
    name           text collate "C" not null, -- empty: a list or watch of all
    verb           text not null,
    form           text not null,             -- object, metadata or table
    user_name      text not null,
    user_uid       text not null,
    user_groups    text[] not null,
    impersonator   text not null,
    request_uri    text not null,
    user_agent     text not null,
    source_address text not null,
    audit_id       text not null
) partition by range (at);

create index on kubechronicle.reads (resource, namespace, name, at);
create index on kubechronicle.reads (user_name, at);
create index on kubechronicle.reads (at, id);

create table kubechronicle.reads_other partition of kubechronicle.reads default;

-- The periods in which a server recorded reads. ``until`` moves on while it does. ``lost``: reads that did not fit into
-- its buffer. ``clean``: it stopped in order, so that none of its reads was lost at the end.
create table kubechronicle.read_recordings (
    id     uuid primary key,
    server text not null,
    since  timestamptz not null,
    until  timestamptz not null,
    lost   bigint not null default 0,
    clean  boolean not null default false,
    policy jsonb not null
);

create index on kubechronicle.read_recordings (until);

-- The table of the week of a moment; made if it is missing.
create function kubechronicle.make_reads_partition(moment timestamptz) returns void language plpgsql as $$
declare
    first timestamptz := date_trunc('week', moment at time zone 'UTC') at time zone 'UTC';
    child text := 'reads_' || to_char(first at time zone 'UTC', 'YYYYMMDD');
begin
    if to_regclass('kubechronicle.' || child) is null then
        perform pg_advisory_xact_lock(hashtext('kubechronicle.reads'));
        execute format('create table if not exists kubechronicle.%I partition of kubechronicle.reads '
            'for values from (%L) to (%L)', child, first, first + interval '7 days');
    end if;
end $$;

-- Record reads, a JSON array of rows, and that the recording goes on.
create function kubechronicle.record_reads(reads json, recording json) returns void language plpgsql
set jit = off as $$
begin
    insert into kubechronicle.reads (at, revision, resource, subresource, namespace, name, verb, form, user_name, user_uid,
        user_groups, impersonator, request_uri, user_agent, source_address, audit_id)
    select to_timestamp(r.at), r.revision, r.resource, r.subresource, r.namespace, r.name, r.verb, r.form, r.user_name,
        r.user_uid, array(select json_array_elements_text(r.user_groups)), r.impersonator, r.request_uri, r.user_agent,
        r.source_address, r.audit_id
    from json_to_recordset(reads) as r (at float8, revision bigint, resource text, subresource text, namespace text,
        name text, verb text, form text, user_name text, user_uid text, user_groups json, impersonator text,
        request_uri text, user_agent text, source_address text, audit_id text);
    insert into kubechronicle.read_recordings as k (id, server, since, until, lost, clean, policy)
    select c.id, c.server, to_timestamp(c.since), to_timestamp(c.until), c.lost, c.clean, c.policy
    from json_to_record(recording) as c (id uuid, server text, since float8, until float8, lost bigint, clean boolean,
        policy jsonb)
    on conflict (id) do update set until = excluded.until, lost = excluded.lost, clean = excluded.clean;
end $$;

-- Make the partitions of this week and the next, and drop those whose reads are older than ``days`` (0: none). A moment
-- in which readers hold the table is no reason to wait: the next call tries again.
create function kubechronicle.retain_reads(days int) returns text[] language plpgsql
set lock_timeout = '3s' as $$
declare
    dropped text[] := '{}';
    child text;
    oldest timestamptz := case when days > 0 then least(clock_timestamp(), (select s.retention_clock from kubechronicle.state s))
        - days * interval '1 day' end; -- a clock that jumped forward for an hour forgets nothing
begin
    perform kubechronicle.make_reads_partition(clock_timestamp());
    perform kubechronicle.make_reads_partition(clock_timestamp() + interval '7 days');
    if oldest is null then return dropped; end if;
    for child in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'kubechronicle.reads'::regclass and c.relname ~ '^reads_[0-9]{8}$'
            and (to_date(right(c.relname, 8), 'YYYYMMDD') + 7)::timestamp at time zone 'UTC' < oldest
    loop
        execute format('drop table kubechronicle.%I', child);
        dropped := dropped || child;
    end loop;
    delete from kubechronicle.reads_other where at < oldest;
    delete from kubechronicle.read_recordings where until < oldest;
    return dropped;
end $$;

-- Recorded reads, for analysts.
create view chronicle.reads with (security_barrier) as
select at, revision, resource, subresource, namespace, name, verb, form, user_name, user_uid, user_groups, impersonator,
    request_uri, user_agent, source_address, audit_id
from kubechronicle.reads;

-- The periods in which reads were recorded: outside of them, a missing row says nothing.
create view chronicle.read_recordings with (security_barrier) as
select server, since, until, lost, clean, policy from kubechronicle.read_recordings;

-- The legal holds in force.
create view chronicle.holds with (security_barrier) as
select h.hold, h.revision, h.resource, h.namespace, h.name, h.reason, h.by, h.selector from kubechronicle.holds() h;

-- The moves of marks, below which history is compacted.
create view chronicle.mark_moves with (security_barrier) as
select m.number, m.moved_at, m.actor, m.role, m.reason, m.compacted_long, m.compacted_of::jsonb as compacted_of, m.revision
from kubechronicle.mark_moves m;

-- Let a role read the schema chronicle only.
create function kubechronicle.let_read(reader name) returns void language plpgsql as $$
begin
    execute format('grant usage on schema chronicle to %I', reader);
    execute format('grant select on all tables in schema chronicle to %I', reader);
    execute format('grant execute on all functions in schema chronicle to %I', reader);
end $$;

revoke all on all functions in schema chronicle from public;

-- The migrating user may lack the right to create roles; then the administrator creates one and calls let_read.
do $$ begin
    if not exists (select from pg_roles where rolname = 'chronicle_reader') then
        begin
            create role chronicle_reader nologin;
        exception when insufficient_privilege or duplicate_object or unique_violation then null;
        end;
    end if;
    if exists (select from pg_roles where rolname = 'chronicle_reader') then
        perform kubechronicle.let_read('chronicle_reader');
    end if;
end $$;

-- Jumps: ranges of revisions without changes of their own (eventlog/integrity/jumps.py). hash(last) =
-- sha256(hash(first - 1) || sha256(about)), so every added, removed or edited row here is detected.
create table kubechronicle.jumps (
    first bigint primary key,
    last  bigint not null,
    about text not null, -- JSON
    hash  bytea not null -- of the last revision
);

-- Append a jump to ``until``. Refused beside a sole appender, whose views would not follow.
create function kubechronicle.jump(until bigint, about text) returns void language plpgsql as $$
declare
    s kubechronicle.state;
    h kubechronicle.heads;
    hash_after bytea;
begin
    select * into strict s from kubechronicle.state for update;
    select * into strict h from kubechronicle.heads n order by n.revision desc limit 1;
    if s.sole <> '' and s.sole_under = pg_postmaster_start_time() then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    elsif until <= h.revision then
        raise exception 'the newest revision is % already', h.revision using errcode = 'invalid_parameter_value';
    end if;
    hash_after := sha256(h.hash || sha256(convert_to(about, 'UTF8')));
    insert into kubechronicle.jumps values (h.revision + 1, until, about, hash_after);
    -- Partitions begin behind the jump: there may be millions of revisions in it.
    update kubechronicle.retention_classes set partitioned_until = until + 1 where partitioned_until <= until;
    insert into kubechronicle.heads values (until, hash_after, h.committed_at);
    perform kubechronicle.make_partitions_until(until);
    update kubechronicle.state set partitioned_until = kubechronicle.partitions_due();
end $$;

-- The servers on this database, and the keys and authorities that each trusts: so that a server can say at its start
-- that credentials of another one are rejected here. No part of the log, and no secrets.
create table kubechronicle.servers (
    name    text primary key,
    trust   jsonb not null, -- ops/server/trust.py
    seen_at timestamptz not null default now()
);

-- Keys and authorities that the servers on this database share, encrypted with a key that the database does not have.
create table kubechronicle.shared_keys (
    name    text primary key, -- of the pair: ca, front-proxy-ca, sa
    sealed  bytea not null,   -- ops/shared_keys.py
    made_at timestamptz not null default now()
);

-- Branches: the changes of each are a small log beside the main log and its hash chain (eventlog/queries/branches.py). A
-- branch is an object in the main log; ``id`` is its uid.
create table kubechronicle.branches (
    id           uuid primary key,
    base         bigint not null,             -- the revision of the main log at which it begins
    revision     bigint not null,             -- its newest one
    changes      bigint not null default 0,
    bytes        bigint not null default 0,   -- of their objects
    epoch        int not null default 0,      -- an append of an earlier epoch is rejected
    erased       boolean not null default false, -- its changes were dropped with erased history
    committed_at timestamptz not null default clock_timestamp(),
    used_at      timestamptz not null default clock_timestamp()
);

create table kubechronicle.branch_changes (
    branch            uuid not null references kubechronicle.branches on delete cascade,
    revision          bigint not null,
    batch             uuid not null,
    resource          text collate "C" not null,
    namespace         text collate "C" not null,
    name              text collate "C" not null,
    uid               text not null,
    create_revision   bigint not null,
    version           bigint not null,
    previous_revision bigint not null,
    operation         smallint not null,
    object            text not null, -- JSON, perhaps encrypted
    committed_at      timestamptz not null,
    author            text not null, -- JSON
    primary key (branch, revision)
);

create index on kubechronicle.branch_changes (branch, batch);
create index on kubechronicle.branch_changes (branch, resource, namespace, name, revision);

-- Append changes to a branch, all or none. ``revisions`` begin after the newest one. A repetition of a batch has the same
-- answer. The outcome: appended, behind (another server has appended, or the epoch has passed), full or gone.
create function kubechronicle.append_to_branch(of_branch uuid, of_batch uuid, of_epoch int, most_bytes bigint,
    most_changes bigint, revisions bigint[], resources text[], namespaces text[], names text[], uids text[], created bigint[],
    versions bigint[], previous bigint[], operations smallint[], objects text[], authors text[])
returns table (outcome text, epoch int, committed_at timestamptz) language plpgsql as $$
declare
    b kubechronicle.branches;
    added bigint := (select coalesce(sum(octet_length(o)), 0) from unnest(objects) o);
    moment timestamptz;
begin
    select * into b from kubechronicle.branches r where r.id = of_branch for update;
    if b.id is null or b.erased then
        return query select 'gone', 0, null::timestamptz;
        return;
    end if;
    select c.committed_at into moment from kubechronicle.branch_changes c
        where c.branch = of_branch and c.batch = of_batch limit 1;
    if moment is not null then
        return query select 'appended', b.epoch, moment;
    elsif of_epoch <> b.epoch or revisions[1] <> b.revision + 1 then
        return query select 'behind', b.epoch, null::timestamptz;
    elsif b.bytes + added > most_bytes or b.changes + cardinality(revisions) > most_changes then
        return query select 'full', b.epoch, null::timestamptz;
    else
        moment := greatest(clock_timestamp(), b.committed_at);
        insert into kubechronicle.branch_changes (branch, batch, revision, resource, namespace, name, uid, create_revision,
            version, previous_revision, operation, object, committed_at, author)
        select of_branch, of_batch, u.revision, u.resource, u.namespace, u.name, u.uid, u.created, u.version, u.previous,
            u.operation, u.object, moment, u.author
        from unnest(revisions, resources, namespaces, names, uids, created, versions, previous, operations, objects, authors)
            u (revision, resource, namespace, name, uid, created, version, previous, operation, object, author);
        update kubechronicle.branches r set revision = b.revision + cardinality(revisions),
            changes = b.changes + cardinality(revisions), bytes = b.bytes + added, committed_at = moment,
            used_at = clock_timestamp()
        where r.id = of_branch;
        perform pg_notify('kubechronicle', 'branch ' || of_branch);
        return query select 'appended', b.epoch, moment;
    end if;
end $$;

-- Return the outcome of a batch: appended, or behind. Then it will never commit, because its epoch has passed.
create function kubechronicle.settle_in_branch(of_branch uuid, of_batch uuid)
returns table (outcome text, epoch int, committed_at timestamptz) language plpgsql as $$
declare
    b kubechronicle.branches;
    moment timestamptz;
begin
    select * into b from kubechronicle.branches r where r.id = of_branch for update;
    select c.committed_at into moment from kubechronicle.branch_changes c
        where c.branch = of_branch and c.batch = of_batch limit 1;
    if moment is not null then
        return query select 'appended', b.epoch, moment;
    else
        update kubechronicle.branches r set epoch = r.epoch + 1 where r.id = of_branch;
        return query select 'behind', coalesce(b.epoch + 1, 0), null::timestamptz;
    end if;
end $$;
