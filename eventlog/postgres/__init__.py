"""The Postgres driver of the log: connections, statements, rows, notifications and migrations."""
