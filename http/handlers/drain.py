"""The end of all watches and other streams when the server stops."""

from __future__ import annotations

from typing import Protocol


class Stream(Protocol):
    """A cursor of a watch, or the body of an answer of another server."""

    def end(self) -> None:
        """End the stream at once. It is not waited for."""


class Drain:
    """Ends the streams of all clients when the server is about to stop. The server's own cursors are not included."""

    def __init__(self) -> None:
        self.begun = False
        self._cursors: set[Stream] = set()

    def begin(self) -> None:
        self.begun = True
        for cursor in list(self._cursors):
            cursor.end()

    def add(self, cursor: Stream) -> None:
        self._cursors.add(cursor)

    def discard(self, cursor: Stream) -> None:
        self._cursors.discard(cursor)
