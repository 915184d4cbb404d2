"""A started watch: its initial state, its cursor, and the type of each event for its watcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kubechronicle.actors.reading.unreadable import unreadable_error
from kubechronicle.eventlog.entries import UNREADABLE, Entry, Event
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.watching.cursors import Cursor


@dataclass(slots=True, eq=False, weakref_slot=True)
class Watching:
    """A started watch: first ``initial`` (as ADDED), then the events of ``cursor``, each passed through ``classify``.

    ``initial_revision``: the revision of the initial state.
    ``bookmark_initial``: send a bookmark after the initial state.
    ``matches``: the selectors; None: every object matches.
    ``future``: waits for the revision to begin at, which this replica has not reached yet. StatusError 504. A log that
    went back (a restore) may give that revision to another change later, which the client would take for a known one.
    """

    initial: Sequence[Entry]
    initial_revision: int
    bookmark_initial: bool
    cursor: Cursor
    matches: Callable[[Entry], bool] | None = None
    future: Callable[[], Awaitable[None]] | None = None

    def classify(self, event: Event) -> tuple[str, Entry] | None:
        """Return an event's type and object for this watcher; None: the event does not concern it.

        An object that stops matching the selectors is DELETED for this watcher, with its last matching state at the
        event's revision. One that begins to match is ADDED. A previous state that was erased, or cannot be decrypted,
        may have matched. After it, a matching object is therefore ADDED, as for a new watcher, and another one is
        DELETED. StatusError: the object cannot be decrypted.
        """
        matches, previous = self.matches, event.previous
        if event.entry.labels is UNREADABLE:
            raise unreadable_error(event.entry)
        deleted = event.operation is Operation.DELETE
        if matches is None:
            new = previous is None or previous.withheld
            return ("DELETED" if deleted else "ADDED" if new else "MODIFIED"), event.entry
        is_now = not deleted and matches(event.entry)
        was = previous is not None and matches(previous)
        if is_now:
            known = was and previous is not None and not previous.withheld
            return ("MODIFIED" if known else "ADDED"), event.entry
        if previous is None or not (was or previous.withheld or event.entry.withheld):
            return None
        return "DELETED", event.entry if deleted else last_seen(event, previous)


def last_seen(event: Event, previous: Entry) -> Entry:
    """Return the object before an event, sealed with the event's revision. It is made once for each event."""
    cached = event.cache.get("last_seen")
    if isinstance(cached, Entry):
        return cached
    member = b'"resourceVersion":"%d"'
    json = previous.json.replace(member % previous.revision, member % event.revision, 1)
    entry = Entry(
        previous.key,
        previous.uid,
        event.revision,
        previous.create_revision,
        previous.version,
        json,
        previous.labels,
        previous.fields,
    )
    event.cache["last_seen"] = entry
    return entry
