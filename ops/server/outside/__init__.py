"""Connections of the server to others: egress proxies, and extension API servers."""
