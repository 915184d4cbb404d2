"""RevisionRetention: whether all changes since a revision are kept, for a reader that goes on from there.

    after 4711, events are kept for a day    lost: events until revision 9000

A list of revisions leaves out what is not kept without a word, so a reader of all changes asks after each page: marks
only rise, so a page has lost nothing if no mark is above its beginning now. It costs three short queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubechronicle.actors.history.extent import moment_at
from kubechronicle.actors.history.merging import Share, position_of
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.api.history.positions import SPAN
from kubechronicle.api.history.revisions import API_VERSION
from kubechronicle.eventlog.records import Head


async def retention(shares: Sequence[Share]) -> dict[str, Any]:
    """Return the RevisionRetention of a selection. Of several logs, its revisions are positions (positions.py).

    ``after``: the position after which the selection begins, with its commit time, if no change since then is gone.
    ``newest``: the newest position.
    ``since``: the position with which the history of the selected resources begins, but for those in ``lost``.
    ``lost``: the resources (without a name: all others) with changes that may be gone, and the last of these;
    ``database``: in the log of another database.
    """
    found = [await _of_log(share) for share in shares]
    newest = _joined(shares, [each["newest"] for each in found])
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionRetention",
        "metadata": {"resourceVersion": newest["revision"]},
        "after": _joined(shares, [each["after"] for each in found]),
        "newest": newest,
        "since": _joined(shares, [each["since"] for each in found]),
        "lost": [lost for each in found for lost in each["lost"]],
    }


async def _of_log(share: Share) -> dict[str, Any]:
    """Return the retention of a selection in one log."""
    changes, log = share.changes, share.changes.log
    newest, head, after = await changes.newest(None), await log.head(), share.selected.query.after
    begin = changes.place * SPAN
    known = begin < after <= newest and after > head.newest_mark
    database = {"database": changes.reads.name} if changes.reads.name else {}
    return {
        "after": await moment_at(log, after) if known else {"revision": str(after)},
        "newest": await moment_at(log, newest),
        "since": await moment_at(log, max(head.compacted, begin + 1)),
        "lost": [
            {**({"resource": resource} if resource else {}), "until": await moment_at(log, mark), **database}
            for resource, mark in sorted(_marks(head, share.selected).items())
            if mark > max(after, begin)
        ],
    }


def _joined(shares: Sequence[Share], moments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the moments of all logs as one: their position, and the latest time. No time: one of them has none."""
    if len(moments) == 1:
        return dict(moments[0])
    revisions = {share.changes: int(each["revision"]) for share, each in zip(shares, moments, strict=True)}
    found = {"revision": str(position_of(revisions))}
    if all("time" in each for each in moments):
        found["time"] = max(each["time"] for each in moments)
    return found


def _marks(head: Head, selected: RevisionSelection) -> dict[str, int]:
    """Return the compacted revisions of the selected resources; those of all others by ""."""
    query = selected.query
    if query.resources:
        return {resource: head.compacted_for(resource) for resource in query.resources}
    own = {resource: mark for resource, mark in head.compacted_of.items() if resource not in query.not_resources}
    return {"": head.compacted, **own}
