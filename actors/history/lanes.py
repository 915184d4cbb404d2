"""RevisionLanes: the changes of a selection as columns of numbers, with the state of the object after each.

    revisions  [41, 42, …]    times  [1764… milliseconds, …]    objects  [0, 1, …]    states  [1, 3, …]

Objects, users and namespaces are named once, in tables, so that 50,000 changes are a megabyte and not twenty. A page
reads a bounded part of the log. Objects that the client may not read have no state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kubechronicle.actors.history.activity import WITHOUT
from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.api.errors import status
from kubechronicle.api.explaining.states import EXISTS, GONE, KINDS, STATES, stored_state
from kubechronicle.api.history.revisions import API_VERSION
from kubechronicle.eventlog.queries.changes import record_size
from kubechronicle.eventlog.records import Operation, Record

PAGE: Final = 5000
"""Changes of a page."""
CHUNK: Final = 500


@dataclass(slots=True)
class _Table:
    """Values, each once, in the order in which they came."""

    places: dict[Any, int] = field(default_factory=dict)

    def place(self, value: Any) -> int:
        return self.places.setdefault(value, len(self.places))


async def lanes(reads: LogChanges, selected: RevisionSelection, *, everything: bool) -> dict[str, Any]:
    """Return the RevisionLanes of a selection, newest first. StatusError 400.

    ``next``: the revision up to which the next page reads (revision.to); "" at the end.
    """
    if selected.needs_objects:
        raise status.bad_request("lanes take no labels, changed fields and reasons: list the revisions instead")
    newest = await reads.newest(None)
    query = replace(
        selected.query,
        until=min(selected.query.until, newest),
        newest_first=True,
        with_replaced=False,
        not_resources=tuple(sorted({*selected.query.not_resources, *WITHOUT})),
    )
    if everything and not query.namespace:
        query = replace(query, namespaced=None)
    objects, users = _Table(), _Table()
    columns: dict[str, list[int]] = {
        name: [] for name in ("revisions", "times", "objects", "users", "operations", "states")
    }
    following = query.until if not selected.is_empty else 0
    while following and len(columns["revisions"]) < PAGE:
        chunk = await reads.log.changes(replace(query, until=following), limit=CHUNK)
        for record, _ in chunk:
            state = await _state(reads, record)
            who = record.who.user if record.who is not None else ""
            columns["revisions"].append(record.revision)
            columns["times"].append(int(record.committed_at.timestamp() * 1000))
            columns["objects"].append(objects.place((*record.key, record.uid)))
            columns["users"].append(users.place(who))
            columns["operations"].append(int(record.operation))
            columns["states"].append(STATES.index(state))
        following = 0 if chunk.is_last(CHUNK) else chunk[-1][0].revision - 1
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionLanes",
        "metadata": {"resourceVersion": str(newest)},
        "stateNames": STATES,
        "objectNames": [list(each) for each in objects.places],
        "userNames": list(users.places),
        **columns,
        "next": str(following) if following else "",
    }


async def _state(reads: LogChanges, record: Record) -> str:
    """Return the state of the object after a change. Only some kinds need their objects decoded, in turns."""
    if record.operation is Operation.DELETE:
        return GONE
    if record.erased or record.problem or not await reads.may_read(record):
        return EXISTS
    if record.key.resource not in KINDS:
        return stored_state(record.key.resource, record.body)
    size = record_size(record)
    await reads.turn.begin(size)
    return await reads.turn.run(size, partial(stored_state, record.key.resource, record.body))
