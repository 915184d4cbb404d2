"""The project's own kinds: revisions."""
