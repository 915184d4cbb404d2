"""An overlay of the views: the changes of a transaction that is being prepared, as if they were committed already.

    transaction: create namespace a, create configmap a/b (charges quota a/q), create configmap a/c (charges a/q)
    overlay:     namespace a is there for both configmaps; the second charge adds to the first

The revision of each entry is unique among all entries. So a result that is kept by an object's revision is never taken
for that of another state. Several changes of a key are folded into one, with the revision that the first one expects:
the log will compare this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from kubechronicle.actors.admission.chain import State
from kubechronicle.api.errors import status
from kubechronicle.eventlog.entries import Describe, Entry, entry_of
from kubechronicle.eventlog.records import Change, Key, Operation, Record

_REVISIONS: Final = itertools.count(2**62)
"""Revisions of the entries of all overlays, above all of the log."""
TWICE: Final = "changes of {}/{} cannot be committed together: one deletes it, and another creates it again"


class Overlay:
    """See the head of this file. ``changes``: by key, in the order in which the keys were first changed."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._entries: dict[Key, Entry | None] = {}
        self.changes: dict[Key, Change] = {}

    def clear(self) -> None:
        """Forget everything, for another attempt."""
        self._entries.clear()
        self.changes.clear()

    def add(self, changes: Iterable[Change]) -> None:
        """Add the changes of one write. StatusError 409: a key would be deleted and created again."""
        for change in changes:
            first = self.changes.get(change.key)
            folded = change if first is None else _folded(first, change)
            if folded is None:
                del self.changes[change.key]
            else:
                self.changes[change.key] = folded
            is_there = change.operation is not Operation.DELETE
            self._entries[change.key] = self._entry(change) if is_there else None

    def over(self, state: State) -> State:
        """Return the state with these changes. Nothing tells of further ones."""
        peek, entries = state.peek, state.entries

        def overlaid_peek(resource: str, namespace: str, name: str) -> Entry | None:
            key = Key(resource, namespace, name)
            return self._entries[key] if key in self._entries else peek(resource, namespace, name)

        def overlaid_entries(resource: str, namespace: str) -> Sequence[Entry]:
            found = entries(resource, namespace)
            own = {
                key: entry
                for key, entry in self._entries.items()
                if key.resource == resource and (not namespace or key.namespace == namespace)
            }
            if not own:
                return found
            kept = [own.pop(entry.key, entry) for entry in found]
            return [entry for entry in (*kept, *own.values()) if entry is not None]

        return replace(state, peek=overlaid_peek, entries=overlaid_entries, follow=None)

    def _entry(self, change: Change) -> Entry:
        revision = next(_REVISIONS)
        record = Record(
            revision=revision,
            key=change.key,
            uid=change.uid,
            create_revision=revision,
            version=1,
            previous_revision=0,
            operation=change.operation,
            body=change.body,
            committed_at=datetime.now(UTC),
            decoded=change.decoded,
            mark=change.mark,
        )
        return entry_of(record, self._describe)


def _folded(first: Change, later: Change) -> Change | None:
    """Return two changes of a key as one; None: they cancel each other out. StatusError 409."""
    if first.operation is Operation.DELETE:
        raise status.StatusError(409, "Conflict", TWICE.format(first.key.resource, first.key.name))
    if first.operation is Operation.CREATE:
        if later.operation is Operation.DELETE:
            return None
        return structs.replace(later, operation=Operation.CREATE, expected=0)
    return structs.replace(later, expected=first.expected)
