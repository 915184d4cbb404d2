-- Jumps: ranges of revisions without changes of their own (eventlog/integrity/jumps.py). hash(last) =
-- sha256(hash(first - 1) || sha256(about)), so every added, removed or edited row here is detected.
create table kubechronicle.jumps (
    first bigint primary key,
    last  bigint not null,
    about text not null, -- JSON
    hash  bytea not null -- of the last revision
);

-- Append a jump to ``until``. Refused beside a sole appender, whose views would not follow.
create function kubechronicle.jump(until bigint, about text) returns void language plpgsql as $$
declare
    h kubechronicle.head;
    hash_after bytea;
begin
    select * into strict h from kubechronicle.head for update;
    if h.sole <> '' and h.sole_under = pg_postmaster_start_time() then
        raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
    elsif until <= h.revision then
        raise exception 'the newest revision is % already', h.revision using errcode = 'invalid_parameter_value';
    end if;
    hash_after := sha256(h.hash || sha256(convert_to(about, 'UTF8')));
    insert into kubechronicle.jumps values (h.revision + 1, until, about, hash_after);
    -- Partitions begin behind the jump: there may be millions of revisions in it.
    update kubechronicle.retention_classes set partitioned_until = until + 1 where partitioned_until <= until;
    update kubechronicle.head set revision = until, hash = hash_after,
        partitioned_until = (select min(c.partitioned_until) from kubechronicle.retention_classes c);
end $$;
