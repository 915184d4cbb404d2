-- The cause of a change: the revision that it is a consequence of, as the writer knew it. The digest covers it, after the
-- reason, unless there is none: so the rows before this, and those that older servers append, keep their digests.
--
-- Servers of schema 0021 work beside this.

alter table kubechronicle.log add column cause bigint not null default 0;
alter table kubechronicle.kept add column cause bigint not null default 0;
-- Partitions that a killed server has detached and not yet dropped.
do $$ declare
    child text;
begin
    for child in
        select c.relname from pg_class c
        where c.relnamespace = 'kubechronicle'::regnamespace and c.relkind = 'r' and c.relname ~ '^log_(long|short)_[0-9]+$'
            and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'cause')
    loop
        execute format('alter table kubechronicle.%I add column cause bigint not null default 0', child);
    end loop;
end $$;
create index on kubechronicle.log (cause, revision) where cause <> 0;

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
create or replace function kubechronicle.append(
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
create or replace function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, reason text, object json,
    server_clock timestamptz
) returns bigint[] language sql as $$
    select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, 0, $21, $22)
$$;

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
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);

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
where l.revision > coalesce((h.compacted_of ->> l.resource)::bigint, h.compacted_long);
