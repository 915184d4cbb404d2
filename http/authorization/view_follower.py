"""Following a view: an index kept from it, up to date whenever somebody is about to use it, with no task of its own."""

from __future__ import annotations

from collections.abc import Callable

from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.views.views import View

Take = Callable[[str, str, Entry | None], None]
"""Told of every object: (namespace, name, the entry as it is now; None: it is gone)."""


class ViewFollower:
    """One view, and up to where its changes have been taken in."""

    def __init__(self, view: View, take: Take) -> None:
        self._view = view
        self._take = take
        self._seen = -1
        self._known: set[tuple[str, str]] = set()

    def catch_up(self) -> bool:
        """Take in what has changed; whether anything had."""
        view = self._view
        if self._seen < view.held_since:
            self._begin_anew()
            return True
        first = view.window.after(self._seen)
        events = view.window.events
        if first == len(events):
            return False
        for event in events[first:]:
            self._one(event.entry, gone=event.operation is Operation.DELETE)
        self._seen = events[-1].revision
        return True

    def _begin_anew(self) -> None:
        """History in memory does not reach back that far: the state as it is, less what was known and is no more."""
        entries = self._view.entries()
        for namespace, name in self._known - {(entry.key.namespace, entry.key.name) for entry in entries}:
            self._known.discard((namespace, name))
            self._take(namespace, name, None)
        for entry in entries:
            self._one(entry, gone=False)
        self._seen = self._view.applied

    def _one(self, entry: Entry, *, gone: bool) -> None:
        _, namespace, name = entry.key
        if gone:
            self._known.discard((namespace, name))
        else:
            self._known.add((namespace, name))
        self._take(namespace, name, None if gone else entry)
