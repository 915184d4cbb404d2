"""StorageVersions."""
