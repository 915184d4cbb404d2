"""The depth of JSON and YAML documents, for readers and writers."""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 250
"""Levels of a document. Go allows 10,000; json.py says why this one does not."""
