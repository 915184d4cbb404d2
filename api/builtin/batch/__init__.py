"""Job and CronJob, a folder each."""
