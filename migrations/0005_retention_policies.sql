-- Retention by resource: how far history is gone is told for each resource that has a policy of its own.

-- What the class 'short' had in common, each of its resources has by itself now.
alter table kubechronicle.head add column compacted_of jsonb not null default '{}';
update kubechronicle.head set compacted_of = coalesce((select jsonb_object_agg(resource, compacted_short)
    from kubechronicle.resource_classes where class = 'short'), '{}') where compacted_short > compacted_long;
alter table kubechronicle.head drop column compacted_short;

-- Below it there is no history of any resource.
create function kubechronicle.oldest_mark() returns bigint language sql stable
return (select least(compacted_long, (select min(value::bigint) from jsonb_each_text(compacted_of)))
    from kubechronicle.head);

-- Move the marks: to ``of`` those of the resources it names, to ``rest`` that of all others. No mark goes back, nor above
-- the newest revision. A resource named for the first time begins where the others are; one that is not named any more
-- goes on by itself until the others have caught up with it.
create function kubechronicle.move_marks(rest bigint, of jsonb) returns void language sql
begin atomic
    update kubechronicle.head h set
        compacted_long = greatest(h.compacted_long, least(rest, h.revision)),
        compacted_of = (
            select coalesce(jsonb_object_agg(resource, mark), '{}') from (
                select coalesce(n.key, o.key) as resource, n.key is not null as named,
                    greatest(coalesce(o.value::bigint, h.compacted_long), least(coalesce(n.value::bigint, 0), h.revision)) as mark
                from jsonb_each_text(h.compacted_of) o full join jsonb_each_text(of) n on n.key = o.key) m
            where m.named or m.mark > greatest(h.compacted_long, least(rest, h.revision)));
end;

create or replace function kubechronicle.first_revision_since(moment timestamptz) returns bigint
language plpgsql stable as $$
declare
    low bigint;
    high bigint;
    middle bigint;
    found_at timestamptz;
begin
    select kubechronicle.oldest_mark() + 1, revision + 1 into low, high from kubechronicle.head;
    while low < high loop
        middle := (low + high) / 2;
        -- rows may be gone, so the nearest row that is there speaks for the middle
        select l.committed_at into found_at from kubechronicle.log l
            where l.revision >= middle and l.revision < high order by l.revision limit 1;
        if found and found_at < moment then low := middle + 1; else high := middle; end if;
    end loop;
    return low;
end $$;

create or replace function kubechronicle.moment_at(asked timestamptz, ago interval,
    out revision bigint, out moment timestamptz, out clock timestamptz) language plpgsql as $$
declare
    h kubechronicle.head;
    oldest bigint;
begin
    clock := clock_timestamp();
    moment := coalesce(asked, clock - ago);
    if moment > clock then return; end if;
    select * into strict h from kubechronicle.head;
    if h.committed_at <= moment and moment > clock - interval '1 minute' then
        -- What is being appended just now may be stamped with an earlier time than this: the answer waits for it, so
        -- that it is the same when asked again. Nobody waits for this transaction to be on disk.
        perform set_config('synchronous_commit', 'off', true);
        perform from kubechronicle.head for key share;
    end if;
    oldest := kubechronicle.oldest_mark();
    revision := kubechronicle.first_revision_since(moment + interval '1 microsecond') - 1;
    -- Of the oldest mark the state can still be read, but since when it was so only its own row tells.
    if revision <= oldest and not exists (select from kubechronicle.log l
            where l.revision = oldest and l.committed_at <= moment) then
        revision := null;
    end if;
end $$;
