"""Trials of admission policies and webhooks against the writes in the log."""
