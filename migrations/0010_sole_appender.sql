-- The sole appender: a server that runs this database itself may claim to be the only one that appends, and then need not
-- ask for the head before each read (eventlog/sole.py). A claim holds under the postmaster it was made under, and no other:
-- after a restart, and wherever this is copied to, it says nothing.

alter table kubechronicle.head
    add column sole text not null default '',                        -- who alone may append; empty: anybody
    add column sole_under timestamptz not null default '-infinity'; -- the start of the postmaster that is true of

-- Claim it, or keep it claimed. Not while another has it, nor while somebody is to append beside, who holds the lock: then
-- it is given up. Answers the head as of the claim, which nobody else moves from then on.
create function kubechronicle.claim_sole(token text,
    out head bigint, out compacted_long bigint, out compacted_of jsonb, out claimed boolean) language plpgsql as $$
declare
    h kubechronicle.head;
begin
    select * into strict h from kubechronicle.head for update;
    claimed := (h.sole in ('', token) or h.sole_under <> pg_postmaster_start_time())
        and pg_try_advisory_xact_lock(x'6b63736f'::int); -- "kcso"
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

create function kubechronicle.refuse_append() returns trigger language plpgsql as $$
begin
    raise exception 'another server runs this database and alone appends to it' using errcode = 'KC001';
end $$;

-- Here, and not in what appends, so that nothing that moves the head gets by. Its function is only called to refuse.
create trigger sole_appender before update of revision on kubechronicle.head for each row
when (new.sole <> '' and new.sole_under = pg_postmaster_start_time()
    and new.sole <> coalesce(current_setting('kubechronicle.sole', true), ''))
execute function kubechronicle.refuse_append();
