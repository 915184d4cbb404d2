"""Transfer of whole logs: backups, their restoration, and the founding of a log by an import."""
