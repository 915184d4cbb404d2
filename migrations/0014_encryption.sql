-- Encryption at rest: the contents of encrypted objects are null in SQL, whatever their resource is.

-- True if the object is stored as ciphertext (eventlog/encryption/stored_form.py).
create function kubechronicle.is_encrypted(object json) returns boolean language sql immutable strict parallel safe
return starts_with(object::text, '{"encrypted":');

-- True if there is no object to show.
create function kubechronicle.is_withheld(object json) returns boolean language sql immutable strict parallel safe
return starts_with(object::text, '{"encrypted":') or starts_with(object::text, '{"erased":');

-- The provider and the name of the key that encrypted the object; null for plaintext.
create function kubechronicle.encryption_of(object json) returns text language sql immutable strict parallel safe
return case when starts_with(object::text, '{"encrypted":') then object ->> 'encrypted' end;

-- All changes with history.
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
    kubechronicle.is_erased(l.object) as erased, kubechronicle.encryption_of(l.object) as encryption
from kubechronicle.log l cross join kubechronicle.head h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);

-- The same for people: user, action and object, with the changed fields.
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
    kubechronicle.is_erased(l.object) as erased
from kubechronicle.log l cross join kubechronicle.head h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);

-- All objects as of a revision, or those of one resource or one namespace. Resources whose history does not reach back to
-- the revision are left out with a notice; if such a resource was requested, it is an error.
create or replace function chronicle.objects_at(at bigint, of_resource text default null, in_namespace text default null)
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

-- All changes with history of the objects of one name, oldest first, each with its differences.
create or replace function chronicle.object_history(of_resource text, in_namespace text, of_name text)
returns table (revision bigint, committed_at timestamptz, operation text, uid text, version bigint, user_name text,
    verb text, user_agent text, source_address text, field_manager text, confidential boolean, changed text[], diff jsonb,
    object jsonb, erased boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
begin atomic
    select l.revision, l.committed_at, kubechronicle.operation_name(l.operation), l.uid, l.version, l.user_name, l.verb,
        l.user_agent, l.source_address, l.field_manager, s.secret, array(select * from jsonb_object_keys(d.diff)), d.diff,
        case when not s.secret and not kubechronicle.is_erased(l.object) then kubechronicle.readable(l.object) end,
        kubechronicle.is_erased(l.object)
    from kubechronicle.log l cross join kubechronicle.head h
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
