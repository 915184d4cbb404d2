"""StorageVersionMigrations."""
