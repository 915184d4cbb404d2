"""Prefixes of paths that lead to other states of the cluster. Without imports, for programs that start often."""

from __future__ import annotations

from typing import Final

HISTORY: Final = "/history/at/"
"""A moment and an ordinary path follow."""
BRANCH: Final = "/branch/"
"""A name and an ordinary path, or one of history, follow."""
