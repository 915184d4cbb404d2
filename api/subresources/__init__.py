"""Subresources with rules of their own: eviction, binding, token requests."""
