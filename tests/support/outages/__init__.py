"""Outages of Postgres for tests: a standby that is promoted, and a network that forwards nothing."""
