"""Events: the core group and events.k8s.io serve the same stored objects."""
