"""RevisionRetention: whether all changes since a revision are kept, for a reader that goes on from there.

    after 4711, events are kept for a day    lost: events until revision 9000

A list of revisions leaves out what is not kept without a word, so a reader of all changes asks after each page: marks
only rise, so a page has lost nothing if no mark is above its beginning now. It costs three short queries.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.actors.history.extent import moment_at
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.api.history.revisions import API_VERSION
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Head


async def retention(log: RevisionLog, reads: ChangeReads, selected: RevisionSelection) -> dict[str, Any]:
    """Return the RevisionRetention of a selection.

    ``after``: the revision after which the selection begins, with its commit time, if no change since then is gone.
    ``newest``: the newest revision.
    ``since``: the revision with which the history of the selected resources begins, but for those in ``lost``.
    ``lost``: the resources (without a name: all others) with changes that may be gone, and the last of these.
    """
    newest, head, after = await reads.newest(None), await log.head(), selected.query.after
    answer: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "RevisionRetention",
        "metadata": {"resourceVersion": str(newest)},
        "after": {"revision": str(after)},
        "newest": await moment_at(log, newest),
        "since": await moment_at(log, max(head.compacted, 1)),
        "lost": [
            {**({"resource": resource} if resource else {}), "until": await moment_at(log, mark)}
            for resource, mark in sorted(_marks(head, selected).items())
            if mark > after
        ],
    }
    if 0 < after <= newest and after > head.newest_mark:
        answer["after"] = await moment_at(log, after)
    return answer


def _marks(head: Head, selected: RevisionSelection) -> dict[str, int]:
    """Return the compacted revisions of the selected resources; those of all others by ""."""
    query = selected.query
    if query.resources:
        return {resource: head.compacted_for(resource) for resource in query.resources}
    own = {resource: mark for resource, mark in head.compacted_of.items() if resource not in query.not_resources}
    return {"": head.compacted, **own}
