"""A RevisionLog in memory with injected faults, for tests."""
