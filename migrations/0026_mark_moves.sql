-- The moves of marks are recorded in a chain, with author, time and reason. And SQL hides what the API hides: the node ports
-- that the server allocates.
--
-- Servers of schema 0021 work beside this.

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

-- Move the marks (compacted revisions): ``of`` has those of single resources, ``rest`` is that of all others. No mark goes
-- back, nor above the newest revision. A new resource in ``of`` starts at the mark of the others. A resource no longer in
-- ``of`` keeps its mark until that of the others has reached it. The move is recorded.
create function kubechronicle.move_marks(rest bigint, of jsonb, actor text, reason text) returns void language plpgsql as $$
begin
    perform from kubechronicle.state for update;
    update kubechronicle.state s set
        compacted_long = greatest(s.compacted_long, least(rest, h.revision)),
        compacted_of = (
            select coalesce(jsonb_object_agg(resource, mark), '{}') from (
                select coalesce(n.key, o.key) as resource, n.key is not null as named,
                    greatest(coalesce(o.value::bigint, s.compacted_long), least(coalesce(n.value::bigint, 0), h.revision)) as mark
                from jsonb_each_text(s.compacted_of) o full join jsonb_each_text(of) n on n.key = o.key) m
            where m.named or m.mark > greatest(s.compacted_long, least(rest, h.revision)))
    from (select max(n.revision) as revision from kubechronicle.heads n) h;
    perform kubechronicle.record_marks(actor, reason);
end $$;

-- The same for servers before schema 26 during an upgrade.
create or replace function kubechronicle.move_marks(rest bigint, of jsonb) returns void language plpgsql as $$
begin
    perform kubechronicle.move_marks(rest, of, current_setting('application_name'), 'retention');
end $$;

create or replace view chronicle.changes with (security_barrier) as
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

create or replace view chronicle.who_did_what with (security_barrier) as
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

-- The moves of marks, below which history is compacted.
create view chronicle.mark_moves with (security_barrier) as
select m.number, m.moved_at, m.actor, m.role, m.reason, m.compacted_long, m.compacted_of::jsonb as compacted_of, m.revision
from kubechronicle.mark_moves m;

-- Roles that could read the schema can read the new view.
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

select kubechronicle.record_marks('kubechronicle migrate', 'the marks before moves were recorded');
