"""Errors as clients see them: Status objects, and field errors with their paths."""
