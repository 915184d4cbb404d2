"""The embedded Postgres: its programs, its cluster, and the processes that run it."""
