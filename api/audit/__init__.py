"""Audit: which requests are recorded at which level, and the events that record them (audit.k8s.io/v1)."""
