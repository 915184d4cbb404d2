"""Patches: pure functions from (document, patch) to the new document."""
