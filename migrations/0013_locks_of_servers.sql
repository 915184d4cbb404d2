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

-- As before, but with the lock of a table in place of an advisory lock. Servers of the version before call it, too.
create or replace function kubechronicle.claim_sole(token text,
    out head bigint, out compacted_long bigint, out compacted_of jsonb, out claimed boolean) language plpgsql as $$
declare
    h kubechronicle.head;
begin
    select * into strict h from kubechronicle.head for update;
    claimed := (h.sole in ('', token) or h.sole_under <> pg_postmaster_start_time())
        and not kubechronicle.appends_are_shared();
    if claimed then
        update kubechronicle.head set sole = token, sole_under = pg_postmaster_start_time();
    elsif h.sole = token then
        update kubechronicle.head set sole = '';
    end if;
    perform set_config('kubechronicle.sole', token, false); -- for the session
    head := h.revision;
    compacted_long := h.compacted_long;
    compacted_of := h.compacted_of;
end $$;

-- As before, but a commit never fails because the queue of notifications is full.
create or replace function kubechronicle.append(
    batch uuid, transactions int[], expected bigint[], operations smallint[],
    resources text[], namespaces text[], names text[], uids text[],
    user_names text[], user_uids text[], user_groups text[], user_extras text[], impersonators text[], verbs text[],
    request_uris text[], user_agents text[], source_addresses text[], field_managers text[], audit_ids text[],
    objects json[],
    out first bigint, out head bigint, out committed_at timestamptz,
    out revisions bigint[], out actual bigint[], out create_revisions bigint[], out versions bigint[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    h kubechronicle.head;
    n constant int := cardinality(resources);
    alone boolean;
    fitting boolean;
    refused int[] := '{}';
    last_hash bytea;
begin
    if current_setting('synchronous_commit') = 'off' then -- an answer means durable, whatever the session says
        perform set_config('synchronous_commit', 'on', true);
    end if;
    select * into strict h from kubechronicle.head for update;
    alone := h.sole <> '' and h.sole_under = pg_postmaster_start_time();
    if alone and h.sole <> coalesce(current_setting('kubechronicle.sole', true), '') then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    end if;
    committed_at := greatest(h.committed_at, clock_timestamp());

    select array_agg(coalesce(l.revision, 0)), array_agg(coalesce(l.create_revision, 0)),
           array_agg(coalesce(l.version, 0)), bool_and((u.operation = 1) = (u.expected = 0))
      into actual, create_revisions, versions, fitting
      from unnest(resources, namespaces, names, operations, append.expected)
          as u (resource, namespace, name, operation, expected)
      left join lateral (
          select * from kubechronicle.live l
          where l.resource = u.resource and l.namespace = u.namespace and l.name = u.name limit 1) l on true;
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
    if head >= h.partitioned_until then perform kubechronicle.make_partitions_until(head); end if;

    with change as (
        select u.*, case when u.operation = 1 then u.revision else u.created end as create_revision,
            case when u.operation = 1 then 1 else u.before + 1 end as version
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
            request_uri, user_agent, source_address, field_manager, audit_id, object))) as digest
        from change
    ), appended as (
        insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
            class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object)
        select revision, create_revision, version, previous_revision, append.committed_at, operation,
            coalesce((select c.class from kubechronicle.resource_classes c where c.resource = d.resource), 'long'),
            resource, namespace, name, uid, user_name, user_uid, groups::text[], extra::json, impersonator, verb,
            request_uri, user_agent, source_address, field_manager, audit_id, digest,
            kubechronicle.chain(h.hash, digest) over (order by revision rows unbounded preceding), object
        from digested d
        returning log.revision, log.hash
    )
    select a.hash into strict last_hash from appended a where a.revision = append.head;

    if 3 = any (operations) then
        delete from kubechronicle.live l
        using unnest(revisions, operations, resources, namespaces, names) u (revision, operation, resource, namespace, name)
        where u.operation = 3 and u.revision is not null
            and l.resource = u.resource and l.namespace = u.namespace and l.name = u.name;
    end if;
    insert into kubechronicle.live as l
    select u.resource, u.namespace, u.name, u.revision, u.revision, 1
    from unnest(revisions, operations, resources, namespaces, names) u (revision, operation, resource, namespace, name)
    where u.operation <> 3 and u.revision is not null
    on conflict (resource, namespace, name) do update set revision = excluded.revision, version = l.version + 1;

    update kubechronicle.head set revision = append.head, hash = last_hash, committed_at = append.committed_at;
    if not alone and pg_notification_queue_usage() < 0.5 then -- see append_change
        perform pg_notify('kubechronicle', append.head::text); -- once per batch: per row it halves the throughput
    end if;
end $$;

create or replace function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json
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
    select h.revision, h.hash, h.committed_at, h.partitioned_until, h.sole, h.sole_under
      into strict last_revision, last_hash, last_at, partitioned_until, sole, sole_under
      from kubechronicle.head h for update;
    alone := sole <> '' and sole_under = pg_postmaster_start_time();
    if alone and sole <> coalesce(current_setting('kubechronicle.sole', true), '') then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    end if;
    committed_at := greatest(last_at, clock_timestamp());
    head := last_revision + 1;
    create_revision := head;

    if operation = 1 then
        insert into kubechronicle.live values (resource, namespace, name, head, head, 1) on conflict do nothing;
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
            and l.name = append_change.name;
        expected := coalesce(expected, 0); -- from here on what was found
        insert into kubechronicle.batches values (batch, committed_at, head, last_revision, array[expected]);
        return array[last_revision, 0, expected, 0, 0];
    end if;
    insert into kubechronicle.batches values (batch, committed_at, head, head, null);
    if head >= partitioned_until then perform kubechronicle.make_partitions_until(head); end if;

    row_digest := sha256(record_send(row(
        head, create_revision, version, expected, committed_at, operation,
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, object)));
    row_hash := sha256(last_hash || row_digest);
    insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object)
    values (head, create_revision, version, expected, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, row_digest, row_hash, object);
    update kubechronicle.head set revision = head, hash = row_hash, committed_at = committed_at;
    -- Alone, nobody has to hear of it. With a full queue, which any role can fill, the commit would fail; others then poll.
    if not alone and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('kubechronicle', head::text);
    end if;
    return array[head, (extract(epoch from committed_at) * 1000000)::bigint, expected, create_revision, version];
end $$;
