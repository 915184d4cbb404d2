"""The rules of Pod."""
