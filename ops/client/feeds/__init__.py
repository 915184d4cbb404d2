"""Feeds: changes read in order from a position, and their delivery to files, brokers and webhooks."""
