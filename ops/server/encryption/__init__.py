"""Encryption at rest in a running server: its settings, the connections to key services, and reloads."""
