-- Keys and authorities that the servers on this database share, encrypted with a key that the database does not have.
-- Servers of schema 0018 work beside this.
create table kubechronicle.shared_keys (
    name    text primary key, -- of the pair: ca, front-proxy-ca, sa
    sealed  bytea not null,   -- ops/shared_keys.py
    made_at timestamptz not null default now()
);
