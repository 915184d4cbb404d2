"""Evictions, and requests for them."""
