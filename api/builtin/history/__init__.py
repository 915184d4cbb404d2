"""Kinds of the project's own API group: revisions, reads, tags and branches."""
