"""Representations: objects and lists encoded in the negotiated form, their caches, and compression."""
