"""Annotations for the audit events of writes, or for none."""

from __future__ import annotations

from typing import Final


class _Unwanted(dict[str, str]):
    """Annotations that nobody reads: it stays empty."""

    def __setitem__(self, key: str, value: str) -> None:
        return None

    def setdefault(self, key: str, default: str = "") -> str:
        return default


UNWANTED: Final[dict[str, str]] = _Unwanted()
"""The annotations of a write that is not audited. Those that cost much to make are not made for it."""
