-- Each migration records the oldest schema whose servers work on the schema after it. So a server of the version before may
-- start on a schema that it does not know: after a downgrade, and when it restarts during an upgrade.
--
-- The migration's text says it in one line, as here (eventlog/postgres/migrate.py):
-- Servers of schema 0018 work beside this.
alter table kubechronicle.migrations add column serves_from int; -- null: no older servers work beside it
