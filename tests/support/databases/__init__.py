"""Servers with several databases, in one process."""
