"""The creation of the present namespace of a name, with which the rights in it begin."""

from __future__ import annotations

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Operation

NAMESPACES = "namespaces"


async def created_at(reads: Reads, namespace: str) -> int:
    """Return the revision that created the present namespace of a name, or the last one; 0: there was none.

    If namespaces have no history that far back, return its beginning: earlier changes may be of another namespace.
    """
    entry = reads.peek(NAMESPACES, "", namespace)
    if entry is not None:
        return entry.create_revision
    query = ChangeQuery(
        namespaced=False,
        name=namespace,
        resources=(NAMESPACES,),
        operations=(Operation.CREATE,),
        with_replaced=False,
    )
    changes = await reads.log.changes(query, limit=1)
    if changes:
        return changes[0][0].revision
    mark = (await reads.log.head()).compacted_for(NAMESPACES)
    return mark + 1 if mark else 0
