"""Outages of Postgres for tests: a standby that is promoted, a network that forwards nothing, a pooler between."""
