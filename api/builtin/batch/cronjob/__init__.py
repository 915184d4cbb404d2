"""The rules of CronJob."""
