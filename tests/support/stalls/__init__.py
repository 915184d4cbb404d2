"""Stalls of the event loop that tests cause, and its longest pass."""
