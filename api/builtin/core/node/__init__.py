"""The rules of Node."""
