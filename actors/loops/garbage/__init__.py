"""The garbage collector: deletes objects without owners, and finishes deletions that wait for dependents."""
