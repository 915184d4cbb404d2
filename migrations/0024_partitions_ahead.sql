-- Attach each partition well before its first row is committed.
--
-- A commit is visible to queries an instant before other backends hear that it has attached a partition. Until then they
-- read by plans without the partition. When append attached the partition of its own row, a query in between found that row
-- missing: a history lacked it, or the log looked corrupt.
--
-- Servers of schema 0021 work beside this.

-- The number of revisions before the end of the newest partition at which an append makes the next one. A server appends
-- so many in some seconds. It is less than the half at which retention makes it.
create function kubechronicle.spare_revisions(span bigint) returns bigint language sql immutable
return greatest(1, least(span / 8, 10000));

-- The revision from which on an append makes partitions.
create function kubechronicle.partitions_due() returns bigint language sql stable
return (select min(c.partitioned_until - kubechronicle.spare_revisions(c.span)) from kubechronicle.retention_classes c);

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
    update kubechronicle.state set partitioned_until = kubechronicle.partitions_due();
    return c.partitioned_until + c.span;
end $$;

-- Make the partitions that are due at a revision. Retention normally makes them in advance; append() falls back on this.
create or replace function kubechronicle.make_partitions_until(needed bigint) returns void language plpgsql as $$
declare
    behind text;
begin
    loop
        select c.class into behind from kubechronicle.retention_classes c
            where c.partitioned_until - kubechronicle.spare_revisions(c.span) <= needed limit 1;
        exit when not found;
        perform kubechronicle.make_partition(behind);
    end loop;
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
    perform kubechronicle.make_partitions_until(until);
    update kubechronicle.state set partitioned_until = kubechronicle.partitions_due();
end $$;

update kubechronicle.state set partitioned_until = kubechronicle.partitions_due();
