"""Stalls of the event loop that tests cause."""
