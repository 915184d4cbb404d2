-- History for analysts: the schema chronicle, whose views and functions read the log in the rights of its owner and tell
-- no contents of what is confidential. docs/sql.md describes them; columns may be added, but stay what they are.
--
-- Invariants:
--   * Contents of confidential resources never leave a view or function: what is computed from them is null.
--   * Views are security barriers, functions that read the log have a fixed search_path: no operator or function of
--     whoever asks sees a row or a value before it is masked.
--   * Nothing is told at or below a resource's mark, whether or not its rows are still stored.

-- Of these nothing but that they changed may be told, however old the change is.
create table kubechronicle.confidential_resources (
    resource text collate "C" primary key
);

insert into kubechronicle.confidential_resources values ('secrets');

create schema chronicle;

-- An object as jsonb, which lacks one thing JSON has: the character NUL, for which U+FFFD stands.
create function kubechronicle.readable(object json) returns jsonb language sql immutable strict parallel safe
return case when strpos(object::text, '\u0000') = 0 then object::jsonb
    else regexp_replace(object::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb end;

-- "deployments.apps" is of the group "apps", "pods" of the core group, "".
create function kubechronicle.group_of(resource text) returns text language sql immutable strict parallel safe
return case when strpos(resource, '.') = 0 then '' else substr(resource, strpos(resource, '.') + 1) end;

-- apiVersion and kind: an object begins with them.
create function kubechronicle.member(object json, member text) returns text language sql immutable strict parallel safe
return substring(left(object::text, 1000) from '"' || member || '":"([^"]*)"');

create function kubechronicle.operation_name(operation smallint) returns text language sql immutable strict parallel safe
return (array['create', 'update', 'delete'])[operation];

-- What differs between two objects, by JSON pointer (RFC 6901): {"/spec/replicas": {"from": 3, "to": 0}}. "from" or "to"
-- is missing where there was or is nothing. Lists are compared item by item if they are of one length, else as a whole.
-- Managed fields are left out: they tell who changed what, and so does the log.
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

-- All changes there is history of.
create view chronicle.changes with (security_barrier) as
select l.revision, l.committed_at, kubechronicle.operation_name(l.operation) as operation,
    kubechronicle.group_of(l.resource) as api_group, l.resource,
    kubechronicle.member(l.object, 'apiVersion') as api_version, kubechronicle.member(l.object, 'kind') as kind,
    l.namespace, l.name, l.uid, l.create_revision, l.version, nullif(l.previous_revision, 0) as previous_revision,
    l.user_name, l.user_uid, l.user_groups, l.user_extra::jsonb as user_extra, l.impersonator, l.verb, l.request_uri,
    l.user_agent, l.source_address, l.field_manager, l.audit_id,
    l.resource in (select c.resource from kubechronicle.confidential_resources c) as confidential,
    case when l.resource not in (select c.resource from kubechronicle.confidential_resources c)
        then kubechronicle.readable(l.object) end as object
from kubechronicle.log l cross join kubechronicle.head h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);

-- The same for people: who did what to what, and which fields it changed.
create view chronicle.who_did_what with (security_barrier) as
select l.revision, l.committed_at, l.user_name as who, nullif(l.impersonator, '') as really,
    case l.operation when 1 then 'created' when 2 then 'updated' else 'deleted' end as did,
    l.resource, l.namespace, l.name, l.verb, l.user_agent, l.source_address,
    case when l.operation = 2 and l.resource not in (select c.resource from kubechronicle.confidential_resources c) then (
        select array(select * from jsonb_object_keys(
            chronicle.difference(kubechronicle.readable(b.object), kubechronicle.readable(l.object))))
        from (
            select p.object from kubechronicle.log p where p.revision = l.previous_revision
            union all
            select k.object from kubechronicle.kept k where k.revision = l.previous_revision limit 1) b)
    end as changed
from kubechronicle.log l cross join kubechronicle.head h
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);

-- The newest revision at a time. In the future, and before all that is kept, there is none: an error.
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

-- All objects as they were at a revision; of one resource, of one namespace, if asked. Resources whose history does not
-- reach back to it are left out with a notice, or an error if it was them that were asked for.
create function chronicle.objects_at(at bigint, of_resource text default null, in_namespace text default null)
returns table (api_group text, resource text, api_version text, kind text, namespace text, name text, uid text,
    revision bigint, create_revision bigint, version bigint, changed_at timestamptz, changed_by text,
    confidential boolean, object jsonb)
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
        r.committed_at, r.user_name, s.secret, case when not s.secret then kubechronicle.readable(r.object) end
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
    cross join lateral (select r.resource in (select f.resource from kubechronicle.confidential_resources f) as secret) s
    where at >= coalesce((h.compacted_of ->> r.resource)::bigint, h.compacted_long)
    order by r.resource, r.namespace, r.name;
end $$;

create function chronicle.objects_at(at timestamptz, of_resource text default null, in_namespace text default null)
returns table (api_group text, resource text, api_version text, kind text, namespace text, name text, uid text,
    revision bigint, create_revision bigint, version bigint, changed_at timestamptz, changed_by text,
    confidential boolean, object jsonb)
language sql stable
begin atomic
    select * from chronicle.objects_at(chronicle.revision_at(at), of_resource, in_namespace);
end;

-- All changes there is history of to what bore a name, the oldest first, each with what it changed.
create function chronicle.object_history(of_resource text, in_namespace text, of_name text)
returns table (revision bigint, committed_at timestamptz, operation text, uid text, version bigint, user_name text,
    verb text, user_agent text, source_address text, field_manager text, confidential boolean, changed text[], diff jsonb,
    object jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
begin atomic
    select l.revision, l.committed_at, kubechronicle.operation_name(l.operation), l.uid, l.version, l.user_name, l.verb,
        l.user_agent, l.source_address, l.field_manager, s.secret, array(select * from jsonb_object_keys(d.diff)), d.diff,
        case when not s.secret then kubechronicle.readable(l.object) end
    from kubechronicle.log l cross join kubechronicle.head h
    cross join (select of_resource in (select c.resource from kubechronicle.confidential_resources c) as secret) s
    left join lateral (
        select chronicle.difference(kubechronicle.readable(b.object), kubechronicle.readable(l.object)) as diff from (
            select p.object from kubechronicle.log p where p.revision = l.previous_revision
            union all
            select k.object from kubechronicle.kept k where k.revision = l.previous_revision limit 1) b
        where l.operation = 2 and not s.secret offset 0) d on true
    where l.resource = of_resource and l.namespace = in_namespace and l.name = of_name
        and l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long)
    order by l.revision;
end;

-- Let a role read the schema chronicle, and nothing else.
create function kubechronicle.let_read(reader name) returns void language plpgsql as $$
begin
    execute format('grant usage on schema chronicle to %I', reader);
    execute format('grant select on all tables in schema chronicle to %I', reader);
    execute format('grant execute on all functions in schema chronicle to %I', reader);
end $$;

revoke all on all functions in schema chronicle from public;

-- Whoever migrates may lack the right to make roles; then the administrator makes one and lets it read.
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
