"""A follower of a view: keeps an index up to date without a task. The index catches up before each use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation


class EventsAfter(Protocol):
    """The recent events of a view (eventlog.views.window.Window)."""

    @property
    def events(self) -> Sequence[Event]: ...

    def after(self, revision: int) -> int: ...


class FollowedView(Protocol):
    """The part of a View that authorizers read: of the present one, or of the state at a moment (past.py)."""

    @property
    def applied(self) -> int: ...

    @property
    def held_since(self) -> int: ...

    @property
    def window(self) -> EventsAfter: ...

    def entries(self, namespace: str = "") -> Sequence[Entry]: ...

    def get(self, namespace: str, name: str) -> Entry | None: ...


class FollowedViews(Protocol):
    def __getitem__(self, resource: str) -> FollowedView: ...


Take = Callable[[str, str, Entry | None], None]
"""Called with each changed object: (namespace, name, its entry, None if it is deleted)."""


class ViewFollower:
    """Passes the changes of one view to ``take``, from the last seen revision on."""

    def __init__(self, view: FollowedView, take: Take) -> None:
        self._view = view
        self._take = take
        self._seen = -1
        self._known: dict[tuple[str, str], Entry] = {}

    def catch_up(self) -> bool:
        """Pass on all changes since the last call. Returns whether there were any."""
        view = self._view
        if self._seen < view.held_since:
            self._restart()
            return True
        first = view.window.after(self._seen)
        events = view.window.events
        if first == len(events):
            return False
        for event in events[first:]:
            self._one(event.entry, gone=event.operation is Operation.DELETE)
        self._seen = events[-1].revision
        return True

    def _restart(self) -> None:
        """Pass on the changes between the known objects and the whole state, with the deletions.

        Needed when the history in memory does not reach back to the last seen revision.
        """
        gone, entries = self._known, self._view.entries()
        self._known = {}
        for entry in entries:
            _, namespace, name = entry.key
            if gone.pop((namespace, name), None) is not entry:
                self._take(namespace, name, entry)
            self._known[(namespace, name)] = entry
        for namespace, name in gone:
            self._take(namespace, name, None)
        self._seen = self._view.applied

    def _one(self, entry: Entry, *, gone: bool) -> None:
        _, namespace, name = entry.key
        if gone:
            self._known.pop((namespace, name), None)
        else:
            self._known[(namespace, name)] = entry
        self._take(namespace, name, None if gone else entry)
