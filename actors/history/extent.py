"""RevisionExtent: what a search for revisions covers, so that an empty answer says where it looked and since when.

    log of events since 3d: no change      events are kept for a day: nobody knows
    log of pod/wbe: no change              no such Pod in the history, which begins at revision 1: mistyped
    who set … by bob: no change            12 changes of the Deployment were searched: bob did not

It counts the changes of the objects that the selectors name, without the selectors of users, operations, reasons and
fields. Permission to list revisions suffices, as for density. Fields also require permission to read the objects.

RevisionRetention: whether all changes since a revision are kept, for a reader that goes on from there.

    after 4711, events are kept for a day    lost: events until revision 9000

A list of revisions leaves out what is not kept without a word, so a reader of all changes asks after each page: marks
only rise, so a page has lost nothing if no mark is above its beginning now. It costs three short queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import orjson

from kubechronicle.actors.history.log_changes import CHUNK, LogChanges, Share, position_of
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.api.history.differences import values_at
from kubechronicle.api.history.extents import MAIN, covered, together
from kubechronicle.api.history.positions import SPAN
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS, written_time
from kubechronicle.api.history.suggestions import fields_of, nearest_field
from kubechronicle.eventlog.errors import BeforeHistory, FutureRevision, TooMany
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.density import MAX_COUNTED
from kubechronicle.eventlog.queries.groups import GroupQuery
from kubechronicle.eventlog.records import Head, Record

# -- known fields ------------------------------------------------------------------------------------------------------
#
# The fields that versions of objects had, so that a path which none of them had is recognised as a mistake.
#
# A selection of changes by a field finds nothing for a mistyped path, as for a field that nobody changed. The versions
# tell these apart. They are read newest first, MAX_VERSIONS at most.


MAX_VERSIONS: Final = 10_000
"""Versions that one request reads."""
MAX_LISTED: Final = 100
"""Versions of which all fields are listed, to find the nearest one."""
MAX_FIELDS: Final = 1000
"""Fields among which the nearest one is searched."""


@dataclass(slots=True)
class _SeenFields:
    """The fields of the versions read so far. ``missing``: paths that no version had."""

    missing: list[str]
    known: dict[str, None] = field(default_factory=dict)
    versions: int = 0

    def add(self, record: Record) -> None:
        obj = orjson.loads(record.body)
        self.missing = [path for path in self.missing if not values_at(obj, path)]
        self.versions += 1
        if self.versions <= MAX_LISTED and len(self.known) < MAX_FIELDS:
            self.known.update(dict.fromkeys(fields_of(obj)))

    def nearest(self) -> list[str]:
        fields = list(self.known)[:MAX_FIELDS]
        return [nearest_field(path, fields) for path in self.missing]


async def unknown_fields(
    log: RevisionLog, reads: LogChanges, query: ChangeQuery, paths: Sequence[str]
) -> dict[str, Any]:
    """Return which of the paths no version of the selected objects had, each with the nearest field (or "").

    ``versions``: the number of versions that were read and may be read by the client.
    ``whole``: all versions were read.
    """
    seen, query = _SeenFields(list(paths)), replace(query, newest_first=True, with_replaced=False)
    scanned, whole = 0, True
    while seen.missing:
        chunk = await log.changes(query, limit=CHUNK)
        for record, _ in chunk:
            if record.erased or record.problem or not await reads.may_read(record):
                continue
            await reads.turn.begin(len(record.body))
            await reads.turn.run(len(record.body), partial(seen.add, record))
        if chunk.is_last(CHUNK):
            break
        scanned += len(chunk)
        if scanned >= MAX_VERSIONS:
            whole = False
            break
        query = replace(query, until=chunk[-1][0].revision - 1)
    missing = list(seen.missing)
    if missing:
        size = sum(map(len, seen.known))
        await reads.turn.begin(size)
        nearest = await reads.turn.run(size, seen.nearest)
    else:
        nearest = []
    return {
        "versions": seen.versions,
        "whole": whole,
        "unknown": [{"field": path, "nearest": near} for path, near in zip(missing, nearest, strict=True)],
    }


MOST_OF_CLUSTER: Final = 200_000
"""Changes of all namespaces that are counted: 200 ms of Postgres. An index counts those of a namespace or an object."""
NAMING: Final = frozenset(("namespace", "name", "uid"))
"""The columns that name objects. Conditions on others choose among the changes of these objects."""


async def extent(shares: Sequence[Share], *, everything: bool = False) -> dict[str, Any]:
    """Return the RevisionExtent of a selection. ``everything``: cover cluster-scoped objects too.

    ``complete``: nothing was ever dropped. ``whole``: nothing was dropped within the bounds of the search.
    ``later``: the resources whose history begins later than that of the others.
    ``databases``: the same for each database, if several were searched. The counts above are their sums. ``since`` is
    the latest beginning of those with dropped changes or, without any, the first beginning.
    """
    newest = {share.changes: await share.changes.newest(None) for share in shares}
    found = [await _extent_of(share, newest[share.changes], everything=everything) for share in shares]
    answer = {
        "apiVersion": API_VERSION,
        "kind": "RevisionExtent",
        "metadata": {"resourceVersion": str(position_of(newest))},
        **(found[0] if len(found) == 1 else together(found)),
    }
    if len(found) > 1:
        names = [share.changes.reads.name or MAIN for share in shares]
        answer["databases"] = [{"database": name, **each} for name, each in zip(names, found, strict=True)]
    answer["message"] = covered(answer)
    return answer


async def _extent_of(share: Share, newest: int, *, everything: bool) -> dict[str, Any]:
    """Return the extent of a search in one log."""
    log, reads, selected = share.changes.log, share.changes, share.selected
    head = await log.head()
    named = _naming(selected.query)
    if everything:
        named = replace(named, namespaced=None)
    first = await reads.begins(selected.selection.namespace)
    searched, held = (
        replace(named, until=min(named.until, newest)),
        replace(named, after=max(first - 1, 0), until=newest),
    )
    counted = await _counted(log, held)
    mark = max((head.compacted_for(resource) for resource in named.resources), default=head.compacted)
    begin = reads.place * SPAN  # of the log's own numbers
    answer: dict[str, Any] = {
        "since": await moment_at(log, max(mark, begin + 1, first)),
        "complete": mark <= begin and first <= begin + 1,
        "whole": mark <= begin or named.after >= max(mark, first - 1),
        "newest": await moment_at(log, newest),
        "searched": counted if searched == held else await _counted(log, searched),
        "held": counted,
    }
    if named.until <= newest or named.after > 0:
        answer["bounds"] = {"after": str(named.after), "until": str(min(named.until, newest))}
    if not named.resources:
        answer["later"] = [
            {"resource": resource, "since": await moment_at(log, later)}
            for resource, later in sorted(head.compacted_of.items())
            if later > mark and resource not in named.not_resources
        ]
    if selected.fields:
        answer["fields"] = await unknown_fields(log, reads, held, [term.value for term in selected.fields])
    return answer


def _naming(query: ChangeQuery) -> ChangeQuery:
    texts = tuple((column, text) for column, text in query.texts if column in NAMING)
    return replace(query, texts=texts, operations=(), reason="")


async def _counted(log: RevisionLog, query: ChangeQuery) -> dict[str, Any]:
    """Return the number of changes, by operation, with the first and the last one. No number: there are too many."""
    if query.after >= query.until:
        return {"changes": 0, "operations": {}}
    try:
        limit = MAX_COUNTED if query.namespace or query.texts else MOST_OF_CLUSTER
        groups = await log.groups(GroupQuery(changes=query, by=("operation",), limit=limit))
    except TooMany:
        return {}
    found: dict[str, Any] = {
        "changes": sum(group.changes for group in groups),
        "operations": {OPERATIONS[int(group.values[0])]: group.changes for group in groups},
    }
    if groups:
        found["first"] = await moment_at(log, min(group.first for group in groups))
        found["last"] = await moment_at(log, max(group.last for group in groups))
    return found


async def moment_at(log: RevisionLog, revision: int) -> dict[str, str]:
    """Return a revision with its time; no time: the log has none for it."""
    time: datetime | None = None
    try:
        time = (await log.moment_of(revision)).time
    except BeforeHistory as error:
        time = error.oldest.time if error.oldest is not None else None
    except FutureRevision:
        pass
    return {"revision": str(revision)} | ({"time": written_time(time)} if time is not None else {})


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
