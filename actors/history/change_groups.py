"""RevisionGroups: counts of revisions by several columns at once, each group with its first and last revision.

Permission to list revisions suffices: it reveals who changed which object when, as a list of revisions does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS
from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.groups import MAX_GROUPS, GroupQuery

BY: Final[Mapping[str, str]] = {
    "resource": "resource",
    "namespace": "namespace",
    "name": "name",
    "user": "user_name",
    "impersonator": "impersonator",
    "operation": "operation",
    "verb": "verb",
    "subresource": "subresource",
}
"""Columns to group by: name in the API → name in the log."""


async def groups(
    log: RevisionLog, reads: ChangeReads, selected: RevisionSelection, by: Sequence[str], *, everything: bool = False
) -> dict[str, Any]:
    """Return the RevisionGroups of a selection, those with the most changes first.

    ``everything``: group cluster-scoped objects too. StatusError 400.
    ``truncated``: there are more groups; ``total`` has their changes, too.
    """
    if selected.needs_objects:
        raise status.bad_request("labels, changed fields and reasons can't be grouped by: list the revisions instead")
    newest = await reads.newest(None)
    changes = replace(selected.query, until=min(selected.query.until, newest))
    if everything:
        changes = replace(changes, namespaced=None)
    query = GroupQuery(changes=changes, by=tuple(BY[name] for name in by))
    try:
        found = [] if selected.is_empty else await log.groups(query)
        truncated = len(found) == MAX_GROUPS
        every = await log.groups(replace(query, by=())) if truncated else found
    except TooMany as error:
        raise status.bad_request(
            f"there are {error.changes} revisions in this time, more than the {error.limit} that are grouped at once: "
            "make the time shorter (fieldSelector=time.from=1h)"
        ) from None
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionGroups",
        "metadata": {"resourceVersion": str(newest)},
        "by": list(by),
        "total": sum(group.changes for group in every),
        "truncated": truncated,
        "groups": [
            _named(by, group.values) | {"changes": group.changes, "first": str(group.first), "last": str(group.last)}
            for group in found
        ],
    }


def _named(by: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    return {
        name: OPERATIONS[int(value)] if name == "operation" else value for name, value in zip(by, values, strict=True)
    }
