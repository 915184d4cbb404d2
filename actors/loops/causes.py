"""Causes of the writes of control loops: the revision of the change that a loop reacts to (``Who.cause``).

    an object changed                 the revision of the object, as the loop has read it
    an object is missing              the revision of its deletion, as long as this server remembers it
    a start, a time, an observation   0: no change in the log is the cause

A loop that sees its own last write passes on the revision of that write, whose cause leads further.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Operation

NO_CHANGE: Final = 0
"""The cause of a write that no change has triggered."""
REMEMBERED: Final = 1000
"""Recent events of a resource that are searched for a deletion: a loop reacts to it soon."""


def deletion_of(reads: Reads, resource: str, namespace: str, name: str) -> int:
    """Return the revision at which an object was deleted lately; NO_CHANGE if this server does not remember it."""
    view = reads.of(resource).find_view(resource)
    for event in islice(reversed(view.events), REMEMBERED) if view is not None else ():
        if event.entry.key == (resource, namespace, name):
            return event.revision if event.operation is Operation.DELETE else NO_CHANGE
    return NO_CHANGE


def state_or_deletion(reads: Reads, entry: Entry | None, resource: str, namespace: str, name: str) -> int:
    """Return the revision of an object, or of its deletion if there is none."""
    return entry.revision if entry is not None else deletion_of(reads, resource, namespace, name)
