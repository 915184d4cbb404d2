"""Lists of causes and of paths that stop growing at the bounds of an answer.

A path may be as long as the request, and a thousand values may lie below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubechronicle.api.custom.schema.structure import Where, path_text
from kubechronicle.api.errors.field_errors import MOST_CAUSE_TEXT, MOST_CAUSES, Cause

MAX_UNKNOWN: Final = 10_000
"""The most unknown fields whose paths are collected; answers show fewer."""

MAX_UNKNOWN_TEXT: Final = 1024 * 1024
"""Characters of all collected paths."""


class BoundedCauses:
    """Causes, as many as an answer may show. ``full``: more are left out."""

    __slots__ = ("_room", "found", "full")

    def __init__(self) -> None:
        self.found: list[Cause] = []
        self.full = False
        self._room = MOST_CAUSE_TEXT

    def extend(self, causes: Iterable[Cause]) -> None:
        """Append causes until the list is full. A generator makes no further ones."""
        for cause in causes:
            self.found.append(cause)
            self._room -= len(cause.field)
            self.full = len(self.found) >= MOST_CAUSES or self._room < 0
            if self.full:
                return


class BoundedPaths:
    """Paths of unknown fields."""

    __slots__ = ("_room", "found")

    def __init__(self) -> None:
        self.found: list[str] = []
        self._room = MAX_UNKNOWN_TEXT

    def add(self, where: Where) -> None:
        """Append a path, unless there are too many."""
        if len(self.found) < MAX_UNKNOWN and self._room > 0:
            path = path_text(where)
            self.found.append(path)
            self._room -= len(path)
