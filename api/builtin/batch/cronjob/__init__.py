"""Rules of CronJob."""
