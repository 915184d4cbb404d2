"""Admission webhooks, mutating and validating: asked while no actor, lock or database connection is held."""
