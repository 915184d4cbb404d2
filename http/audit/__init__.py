"""Audit of requests: the events of each request, and the backends that they are written to."""
