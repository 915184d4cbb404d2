"""Writes of control loops that accept another writer's result: the object was created or deleted in the meantime."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Operation

# -- causes ------------------------------------------------------------------------------------------------------------
#
# Causes of the writes of control loops: the revision of the change that a loop reacts to (``Who.cause``).
#
#     an object changed                 the revision of the object, as the loop has read it
#     an object is missing              the revision of its deletion, as long as this server remembers it
#     a start, a time, an observation   0: no change in the log is the cause
#
# A loop that sees its own last write passes on the revision of that write, whose cause leads further.


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


# -- conditions --------------------------------------------------------------------------------------------------------
#
# Conditions in the status of an object, set by control loops (API conventions, "Typical status properties").


def with_condition(
    obj: Object, kind: str, state: str, *, reason: str = "", message: str = "", observed: bool = False
) -> Object:
    """Return the object with its condition ``kind`` in this state. The condition's time is the last change of state.

    ``observed``: the condition names the object's generation, if there is one.
    """
    status = obj.get("status") or {}
    conditions = [dict(one) for one in status.get("conditions") or ()]
    held = next((one for one in conditions if one.get("type") == kind), None)
    if held is None:
        held = {"type": kind}
        conditions.append(held)
    if held.get("status") != state:
        held["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    held.update({"status": state, "reason": reason, "message": message})
    if observed and obj["metadata"].get("generation"):
        held["observedGeneration"] = obj["metadata"]["generation"]
    return {**obj, "status": {**status, "conditions": conditions}}


NAMESPACE_ENDS: Final = "NamespaceTerminating"
"""The cause of a rejection. One without it comes from admission: a quota, a policy, a webhook."""


async def create_unless_exists(
    store: Store,
    component: str,
    target: Target,
    obj: Object,
    *,
    cause: int | None = None,
    unless_namespace_ends: bool = False,
) -> None:
    """Create the object; ``obj`` may lack apiVersion and kind. StatusError.

    ``cause``: as in the section above; None: the object's deletion, if there was one.
    ``unless_namespace_ends``: also accept that the namespace is gone or terminating.
    """
    body = {"apiVersion": target.rt.api_version, "kind": target.rt.kind, **obj}
    if cause is None:
        cause = deletion_of(store.reads, target.rt.resource, target.namespace, target.name)
    try:
        await store.writes.create(system_caller(component, "create", cause=cause), target, body)
    except StatusError as error:
        if error.reason != "AlreadyExists" and not (unless_namespace_ends and _namespace_ends(error)):
            raise


def _namespace_ends(error: StatusError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return error.code == 404 or any(cause.get("reason") == NAMESPACE_ENDS for cause in causes)


async def edit_if_exists(
    store: Store, component: str, target: Target, change: Callable[[Object], Object], *, cause: int
) -> None:
    """Change the object as ``Writes.edit`` does, if it still exists."""
    try:
        await store.writes.edit(system_caller(component, "update", cause=cause), target, change)
    except StatusError as error:
        if error.code != 404:
            raise


async def delete_if_exists(store: Store, component: str, target: Target, options: DeleteOptions, *, cause: int) -> None:
    """Delete the object, if it still exists."""
    try:
        await store.writes.delete(system_caller(component, "delete", cause=cause), target, options)
    except StatusError as error:
        if error.code != 404:
            raise
