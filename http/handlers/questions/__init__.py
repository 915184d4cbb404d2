"""Questions about history, one module each: past rights, and searches for a condition."""
