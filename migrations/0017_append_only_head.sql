-- Appending locks one row and does not change it; the newest revision is in the last row of a table that is only inserted
-- into. So a snapshot that somebody holds for long (pg_dump, an analyst, an archive) no longer slows appends.
--
-- The table of the last revisions has the revision in its key for the same reason.
--
-- Servers of version 0.1.0 go on beside this schema: head is a view with the columns of the former table, and the
-- functions that they call keep their arguments and results.
lock table kubechronicle.head in access exclusive mode;
alter table kubechronicle.head rename to state;
alter table kubechronicle.state rename constraint head_pkey to state_pkey;
alter table kubechronicle.state rename constraint head_one_check to state_one_check;
alter table kubechronicle.state add column retention_clock timestamptz; -- the time by which retention last judged ages

alter table kubechronicle.live drop constraint live_pkey;
alter table kubechronicle.live add primary key (resource, namespace, name, revision);

-- The newest revision is in the last row. One row per batch, only inserted; the older ones are deleted behind. The key
-- also rejects a second successor of a revision.
create table kubechronicle.heads (
    revision     bigint constraint heads_pkey primary key,
    hash         bytea not null,      -- of that revision
    committed_at timestamptz not null -- never less than before
);

insert into kubechronicle.heads select revision, hash, committed_at from kubechronicle.state;
update kubechronicle.state set retention_clock = committed_at where revision > 0;

create or replace function kubechronicle.move_marks(rest bigint, of jsonb) returns void language sql
begin atomic
    update kubechronicle.state s set
        compacted_long = greatest(s.compacted_long, least(rest, h.revision)),
        compacted_of = (
            select coalesce(jsonb_object_agg(resource, mark), '{}') from (
                select coalesce(n.key, o.key) as resource, n.key is not null as named,
                    greatest(coalesce(o.value::bigint, s.compacted_long), least(coalesce(n.value::bigint, 0), h.revision)) as mark
                from jsonb_each_text(s.compacted_of) o full join jsonb_each_text(of) n on n.key = o.key) m
            where m.named or m.mark > greatest(s.compacted_long, least(rest, h.revision)))
    from (select max(n.revision) as revision from kubechronicle.heads n) h;
end;

alter table kubechronicle.state drop column revision, drop column hash, drop column committed_at;

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

create or replace function kubechronicle.make_partition(retention_class text) returns bigint language plpgsql as $$
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
    update kubechronicle.state set partitioned_until =
        (select min(partitioned_until) from kubechronicle.retention_classes);
    return c.partitioned_until + c.span;
end $$;

create function kubechronicle.append(
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

-- The same for servers of version 0.1.0 during an upgrade: by the clock of the database alone.
create or replace function kubechronicle.append(
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

create function kubechronicle.append_change(
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
        request_uri, user_agent, source_address, field_manager, audit_id, object)));
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

-- The same for servers of version 0.1.0 during an upgrade.
create or replace function kubechronicle.append_change(
    batch uuid, expected bigint, operation smallint, class text, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json
) returns bigint[] language sql as $$
    select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, null)
$$;

create or replace function kubechronicle.claim_sole(token text,
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
create or replace function kubechronicle.moment_at(asked timestamptz, ago interval,
    out revision bigint, out moment timestamptz, out clock timestamptz) language sql as $$
    select m.revision, m.moment, m.clock from kubechronicle.moment_at($1, $2, null) m
$$;

create or replace function kubechronicle.retain_reads(days int) returns text[] language plpgsql
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

create or replace function kubechronicle.jump(until bigint, about text) returns void language plpgsql as $$
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
    update kubechronicle.state set partitioned_until = (select min(c.partitioned_until) from kubechronicle.retention_classes c);
end $$;
