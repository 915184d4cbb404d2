-- Retention: what stays of history when partitions go.

-- Copied forward from dropped partitions: for each object the newest row there, unless it deleted the object. So objects
-- that have not changed for years are still found, and so are all objects as of a revision that is still retained.
create table kubechronicle.kept (like kubechronicle.log including defaults including constraints including compression);
alter table kubechronicle.kept add primary key (revision);
create index on kubechronicle.kept (resource, namespace, name, revision);

-- The digests of rows whose partition is gone: with them the hash chain can still be proved from its beginning. One row
-- per thousand revisions and class; the two arrays run in parallel.
create table kubechronicle.tombstones (
    thousand  bigint not null, -- revision / 1000
    class     text not null,
    revisions bigint[] not null,
    digests   bytea[] not null,
    primary key (thousand, class)
);

-- First half of dropping a partition, in one transaction: copy forward what must survive, and keep the digests. Readers
-- see a survivor twice until the partition is detached; every query takes the newest row of a key and one row of a
-- revision, so that makes no difference. Doing it twice changes nothing.
create function kubechronicle.copy_forward(partition regclass, retention_class text) returns void language plpgsql as $$
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
end $$;

-- The first revision committed at or after a moment; one above the newest if there is none. committed_at never
-- decreases, so bisection finds it without an index.
create function kubechronicle.first_revision_since(moment timestamptz) returns bigint language plpgsql stable as $$
declare
    low bigint;
    high bigint;
    middle bigint;
    found_at timestamptz;
begin
    select compacted_long + 1, revision + 1 into low, high from kubechronicle.head;
    while low < high loop
        middle := (low + high) / 2;
        -- rows of the short class may be gone, so the nearest row that is there speaks for the middle
        select l.committed_at into found_at from kubechronicle.log l
            where l.revision >= middle and l.revision < high order by l.revision limit 1;
        if found and found_at < moment then low := middle + 1; else high := middle; end if;
    end loop;
    return low;
end $$;
