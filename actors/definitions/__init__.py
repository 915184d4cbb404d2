"""The registration of custom resources: the current registry, and the conditions and deletion of definitions."""
