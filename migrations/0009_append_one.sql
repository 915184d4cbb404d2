-- Append one change: as append() with arrays of one element, for half the work. A lone change is most of what a server
-- that is not busy appends, and its client waits for it. Answers one row: the revision found before (refused, unless it is
-- what was expected), and of what was appended the revision (as ``head``), create_revision and version.
create function kubechronicle.append_one(
    batch uuid, expected bigint, operation smallint, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json,
    out head bigint, out committed_at timestamptz, out actual bigint, out create_revision bigint, out version bigint
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_variable
declare
    h kubechronicle.head;
    row_digest bytea;
    row_hash bytea;
begin
    if current_setting('synchronous_commit') = 'off' then -- an answer means durable, whatever the session says
        perform set_config('synchronous_commit', 'on', true);
    end if;
    select * into strict h from kubechronicle.head for update;
    committed_at := greatest(h.committed_at, clock_timestamp());

    select l.revision, l.create_revision, l.version into actual, create_revision, version from kubechronicle.live l
    where l.resource = append_one.resource and l.namespace = append_one.namespace and l.name = append_one.name;
    actual := coalesce(actual, 0);
    if actual <> expected then
        head := h.revision;
        insert into kubechronicle.batches values (batch, committed_at, head + 1, head, array[actual]);
        return;
    end if;
    head := h.revision + 1;
    insert into kubechronicle.batches values (batch, committed_at, head, head, null);
    if head >= h.partitioned_until then perform kubechronicle.make_partitions_until(head); end if;

    if operation = 1 then create_revision := head; end if;
    version := case when operation = 1 then 1 else version + 1 end;
    row_digest := sha256(record_send(row(
        head, create_revision, version, actual, committed_at, operation,
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, object)));
    row_hash := sha256(h.hash || row_digest);
    insert into kubechronicle.log (revision, create_revision, version, previous_revision, committed_at, operation,
        class, resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, digest, hash, object)
    values (head, create_revision, version, actual, committed_at, operation,
        coalesce((select c.class from kubechronicle.resource_classes c where c.resource = append_one.resource), 'long'),
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, row_digest, row_hash, object);

    if operation = 1 then
        insert into kubechronicle.live values (resource, namespace, name, head, head, 1);
    elsif operation = 2 then
        update kubechronicle.live l set revision = head, version = append_one.version
        where l.resource = append_one.resource and l.namespace = append_one.namespace and l.name = append_one.name;
    else
        delete from kubechronicle.live l
        where l.resource = append_one.resource and l.namespace = append_one.namespace and l.name = append_one.name;
    end if;
    update kubechronicle.head set revision = append_one.head, hash = row_hash, committed_at = append_one.committed_at;
    perform pg_notify('kubechronicle', append_one.head::text);
end $$;
