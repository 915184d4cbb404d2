"""Served resources: their table, API versions, discovery documents, and `--runtime-config`."""
