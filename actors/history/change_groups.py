"""RevisionGroups: counts of revisions by several columns at once, each group with its first and last revision.

Permission to list revisions suffices: it reveals who changed which object when, as a list of revisions does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.actors.history.log_changes import LogChanges, Share, everywhere, position_of
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS
from kubechronicle.eventlog.errors import TooMany
from kubechronicle.eventlog.queries.groups import MAX_GROUPS, ChangeGroup, GroupQuery

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


async def groups(shares: Sequence[Share], by: Sequence[str], *, everything: bool = False) -> dict[str, Any]:
    """Return the RevisionGroups of a selection over all its logs, those with the most changes first.

    ``everything``: group cluster-scoped objects too. StatusError 400.
    ``truncated``: there are more groups; ``total`` has their changes, too.
    ``first``, ``last``: of the log named in ``database``; ``others`` has those of further logs with such changes.
    """
    if shares[0].selected.needs_objects:
        raise status.bad_request("labels, changed fields and reasons can't be grouped by: list the revisions instead")
    newest, logs = dict[LogChanges, int](), dict[Share, Sequence[ChangeGroup]]()
    total, truncated = 0, False
    for share in shares:
        newest[share.changes] = await share.changes.newest(None)
        share.narrow(until=newest[share.changes], **everywhere(everything))
        query = GroupQuery(changes=share.query, by=tuple(BY[name] for name in by))
        logs[share] = found = [] if share.ended else await _groups_of(share.changes, query)
        truncated |= len(found) == MAX_GROUPS
        every = await _groups_of(share.changes, replace(query, by=())) if len(found) == MAX_GROUPS else found
        total += sum(group.changes for group in every)
    entries = _entries(logs, by)
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionGroups",
        "metadata": {"resourceVersion": str(position_of(newest))},
        "by": list(by),
        "total": total,
        "truncated": truncated or len(entries) > MAX_GROUPS,
        "groups": entries[:MAX_GROUPS],
    }


async def _groups_of(changes: LogChanges, query: GroupQuery) -> Sequence[ChangeGroup]:
    try:
        return await changes.log.groups(query)
    except TooMany as error:
        raise status.bad_request(
            f"there are {error.changes} revisions in this time, more than the {error.limit} that are grouped at once: "
            "make the time shorter (fieldSelector=time.from=1h)"
        ) from None


def _entries(logs: Mapping[Share, Sequence[ChangeGroup]], by: Sequence[str]) -> list[dict[str, Any]]:
    """Return the groups of all logs, one for the same values, those with the most changes first."""
    entries: dict[tuple[str, ...], dict[str, Any]] = {}
    for share, found in logs.items():
        database = {"database": share.changes.reads.name} if share.changes.reads.name else {}
        for group in found:
            ends = {**database, "first": str(group.first), "last": str(group.last)}
            entry = entries.get(group.values)
            if entry is None:
                entries[group.values] = _named(by, group.values) | {"changes": group.changes, **ends}
            else:
                entry["changes"] += group.changes
                entry.setdefault("others", []).append(ends)
    if len(logs) == 1:
        return list(entries.values())
    return [entry for _, entry in sorted(entries.items(), key=lambda item: (-item[1]["changes"], item[0]))]


def _named(by: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    return {
        name: OPERATIONS[int(value)] if name == "operation" else value for name, value in zip(by, values, strict=True)
    }
