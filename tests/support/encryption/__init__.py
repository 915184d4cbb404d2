"""Helpers for encryption at rest and the gRPC client: providers of keys, and servers that fail on demand."""
