-- Moments: which revision was the newest at a time; and what a list of the past needs to be quick.

-- For lists of the past: what was deleted since, in the order of keys, and told from the index alone.
create index on kubechronicle.log (resource, namespace, name, create_revision, revision) include (previous_revision)
    where operation = 3;

-- The newest revision committed at a moment or before, which is given as a time or as how long ago by the clock that
-- stamps the commits. No revision: the moment lies in the future, or before all that is kept.
create function kubechronicle.moment_at(asked timestamptz, ago interval,
    out revision bigint, out moment timestamptz, out clock timestamptz) language plpgsql as $$
declare
    h kubechronicle.head;
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
    revision := kubechronicle.first_revision_since(moment + interval '1 microsecond') - 1;
    -- Of the compacted revision the state can still be read, but since when it was so only its own row tells.
    if revision <= h.compacted_long and not exists (select from kubechronicle.log l
            where l.revision = h.compacted_long and l.committed_at <= moment) then
        revision := null;
    end if;
end $$;
