"""The in-memory state of each resource at the applied revision, with its recent events."""
