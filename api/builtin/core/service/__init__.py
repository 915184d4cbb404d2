"""The rules of Service."""
