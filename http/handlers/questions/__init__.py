"""Questions about history: summaries of changes, past rights, and searches for a condition."""
