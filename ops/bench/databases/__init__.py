"""Databases: the gain of a second one, for Events and Leases (``ops.bench.databases``)."""
