"""Kubernetes' own integration tests against this server, whose starters an overlay replaces: ``make integration``."""
