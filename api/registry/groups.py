"""The names of API groups of our own. A module without imports: clients start sooner without the table of resources."""

from __future__ import annotations

from typing import Final

HISTORY: Final = "history.kubechronicle.dev"
"""Revisions, tags, branches, and the questions about the past."""
