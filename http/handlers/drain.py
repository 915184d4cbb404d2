"""The end of all watches when the server stops."""

from __future__ import annotations

from kubechronicle.eventlog.watching.cursors import Cursor


class Drain:
    """Ends the watches of all clients when the server is about to stop. The server's own cursors are not included."""

    def __init__(self) -> None:
        self.begun = False
        self._cursors: set[Cursor] = set()

    def begin(self) -> None:
        self.begun = True
        for cursor in self._cursors:
            cursor.end()

    def add(self, cursor: Cursor) -> None:
        self._cursors.add(cursor)

    def discard(self, cursor: Cursor) -> None:
        self._cursors.discard(cursor)
