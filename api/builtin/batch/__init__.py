"""Jobs and CronJobs, a folder each."""
