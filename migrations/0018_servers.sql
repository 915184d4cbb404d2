-- The servers on this database, and the keys and authorities that each trusts: so that a server can say at its start
-- that credentials of another one are rejected here. No part of the log, and no secrets.
create table kubechronicle.servers (
    name    text primary key,
    trust   jsonb not null, -- ops/server/trust.py
    seen_at timestamptz not null default now()
);
