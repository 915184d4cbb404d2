-- A legal hold may have a label selector: what it covers is told from the labels of all kept revisions. And a move of
-- the marks sees a hold that began while it waited for the lock.
--
-- Servers of schema 0021 work beside this.

drop view chronicle.holds;
drop function kubechronicle.holds();

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
create or replace function kubechronicle.move_marks(rest bigint, of jsonb, actor text, reason text) returns void language plpgsql as $$
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

-- The legal holds in force.
create view chronicle.holds with (security_barrier) as
select h.hold, h.revision, h.resource, h.namespace, h.name, h.reason, h.by, h.selector from kubechronicle.holds() h;

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
