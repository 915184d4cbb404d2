-- Branches: the changes of each are a small log beside the main log and its hash chain (eventlog/queries/branches.py). A
-- branch is an object in the main log; ``id`` is its uid.
--
-- Servers of schema 0021 work beside this.
create table kubechronicle.branches (
    id           uuid primary key,
    base         bigint not null,             -- the revision of the main log at which it begins
    revision     bigint not null,             -- its newest one
    changes      bigint not null default 0,
    bytes        bigint not null default 0,   -- of their objects
    epoch        int not null default 0,      -- an append of an earlier epoch is rejected
    erased       boolean not null default false, -- its changes were dropped with erased history
    committed_at timestamptz not null default clock_timestamp(),
    used_at      timestamptz not null default clock_timestamp()
);

create table kubechronicle.branch_changes (
    branch            uuid not null references kubechronicle.branches on delete cascade,
    revision          bigint not null,
    batch             uuid not null,
    resource          text collate "C" not null,
    namespace         text collate "C" not null,
    name              text collate "C" not null,
    uid               text not null,
    create_revision   bigint not null,
    version           bigint not null,
    previous_revision bigint not null,
    operation         smallint not null,
    object            text not null, -- JSON, perhaps encrypted
    committed_at      timestamptz not null,
    author            text not null, -- JSON
    primary key (branch, revision)
);

create index on kubechronicle.branch_changes (branch, batch);
create index on kubechronicle.branch_changes (branch, resource, namespace, name, revision);

-- Append changes to a branch, all or none. ``revisions`` begin after the newest one. A repetition of a batch has the same
-- answer. The outcome: appended, behind (another server has appended, or the epoch has passed), full or gone.
create function kubechronicle.append_to_branch(of_branch uuid, of_batch uuid, of_epoch int, most_bytes bigint,
    most_changes bigint, revisions bigint[], resources text[], namespaces text[], names text[], uids text[], created bigint[],
    versions bigint[], previous bigint[], operations smallint[], objects text[], authors text[])
returns table (outcome text, epoch int, committed_at timestamptz) language plpgsql as $$
declare
    b kubechronicle.branches;
    added bigint := (select coalesce(sum(octet_length(o)), 0) from unnest(objects) o);
    moment timestamptz;
begin
    select * into b from kubechronicle.branches r where r.id = of_branch for update;
    if b.id is null or b.erased then
        return query select 'gone', 0, null::timestamptz;
        return;
    end if;
    select c.committed_at into moment from kubechronicle.branch_changes c
        where c.branch = of_branch and c.batch = of_batch limit 1;
    if moment is not null then
        return query select 'appended', b.epoch, moment;
    elsif of_epoch <> b.epoch or revisions[1] <> b.revision + 1 then
        return query select 'behind', b.epoch, null::timestamptz;
    elsif b.bytes + added > most_bytes or b.changes + cardinality(revisions) > most_changes then
        return query select 'full', b.epoch, null::timestamptz;
    else
        moment := greatest(clock_timestamp(), b.committed_at);
        insert into kubechronicle.branch_changes (branch, batch, revision, resource, namespace, name, uid, create_revision,
            version, previous_revision, operation, object, committed_at, author)
        select of_branch, of_batch, u.revision, u.resource, u.namespace, u.name, u.uid, u.created, u.version, u.previous,
            u.operation, u.object, moment, u.author
        from unnest(revisions, resources, namespaces, names, uids, created, versions, previous, operations, objects, authors)
            u (revision, resource, namespace, name, uid, created, version, previous, operation, object, author);
        update kubechronicle.branches r set revision = b.revision + cardinality(revisions),
            changes = b.changes + cardinality(revisions), bytes = b.bytes + added, committed_at = moment,
            used_at = clock_timestamp()
        where r.id = of_branch;
        perform pg_notify('kubechronicle', 'branch ' || of_branch);
        return query select 'appended', b.epoch, moment;
    end if;
end $$;

-- Return the outcome of a batch: appended, or behind. Then it will never commit, because its epoch has passed.
create function kubechronicle.settle_in_branch(of_branch uuid, of_batch uuid)
returns table (outcome text, epoch int, committed_at timestamptz) language plpgsql as $$
declare
    b kubechronicle.branches;
    moment timestamptz;
begin
    select * into b from kubechronicle.branches r where r.id = of_branch for update;
    select c.committed_at into moment from kubechronicle.branch_changes c
        where c.branch = of_branch and c.batch = of_batch limit 1;
    if moment is not null then
        return query select 'appended', b.epoch, moment;
    else
        update kubechronicle.branches r set epoch = r.epoch + 1 where r.id = of_branch;
        return query select 'behind', coalesce(b.epoch + 1, 0), null::timestamptz;
    end if;
end $$;
