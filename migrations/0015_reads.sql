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
    oldest timestamptz := case when days > 0 then clock_timestamp() - days * interval '1 day' end;
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

-- Roles that could read the schema can read the new views.
do $$
declare
    reader record;
begin
    for reader in
        select distinct r.rolname from pg_namespace n, aclexplode(n.nspacl) a join pg_roles r on r.oid = a.grantee
        where n.nspname = 'chronicle' and a.privilege_type = 'USAGE' and a.grantee <> n.nspowner
    loop
        perform kubechronicle.let_read(reader.rolname);
    end loop;
end $$;
