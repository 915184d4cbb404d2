"""Requests in branches: the right to use one, and the backend over its store."""
