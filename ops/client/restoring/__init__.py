"""Restoring past states: the plan, its trial by dry runs, and its steps through the Kubernetes API."""
