-- Drops of partitions, and changes of the confidential resources, are entries of the log (eventlog/integrity/drops.py). And
-- the digest of a row covers its retention class, which decides when it is dropped: as the last column. Rows before this
-- keep their digests.
--
-- Servers of schema 0019 work beside this.

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

create or replace function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    objects json[], server_clock timestamptz,
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
            source_addresses, field_managers, audit_ids, objects)
        as u (revision, previous_revision, created, before, operation, resource, namespace, name, uid,
            user_name, user_uid, groups, extra, impersonator, verb, request_uri, user_agent, source_address,
            field_manager, audit_id, object)
        where u.revision is not null
    ), digested as (
        -- record_send: the number of columns, then for each its type's oid, its length and its binary form. So no
        -- two different rows have the same encoding, and anyone can compute it without this database.
        select *, sha256(record_send(row(
            revision, create_revision, version, previous_revision, append.committed_at, operation,
            resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, object, class))) as digest
        from change
    ), appended as (
        insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
            class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object)
        select revision, create_revision, version, previous_revision, append.committed_at, operation,
            class, resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest,
            kubechronicle.chain(h.hash, digest) over (order by revision rows unbounded preceding), object
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

create or replace function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json,
    server_clock timestamptz
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

    row_digest := sha256(record_send(row(
        head, create_revision, version, expected, committed_at, operation,
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, object, class)));
    row_hash := sha256(last_hash || row_digest);
    insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object)
    values (head, create_revision, version, expected, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, row_digest, row_hash, object);
    insert into kubechronicle.heads values (head, row_hash, committed_at);
    if head / 1024 <> last_revision / 1024 then perform kubechronicle.prune_heads(head); end if;
    -- Alone, nobody has to hear of it. With a full queue, which any role can fill, the commit would fail; others then poll.
    if not alone and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('kubechronicle', head::text);
    end if;
    return array[head, (extract(epoch from committed_at) * 1000000)::bigint, expected, create_revision, version];
end $$;

-- As before; and record the drop. It appends to the log, so no other server may alone append.
create or replace function kubechronicle.copy_forward(partition regclass, retention_class text) returns void language plpgsql as $$
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

-- Earlier drops, and earlier changes of the confidential resources. This fails beside a server that alone appends: stop it first.
select kubechronicle.record_earlier_drops();
