"""Generators of api/kinds: facts of a Kubernetes release, read from its Go modules."""
