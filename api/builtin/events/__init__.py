"""Events, of which core and events.k8s.io show the same stored objects."""
