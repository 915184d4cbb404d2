"""Erasure of contents or users from the log and its archives, as required by law."""
