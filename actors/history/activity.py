"""RevisionActivity: the changes of people and their programs, newest first, each with what followed from it.

    alice sets the image of Deployment web          the change that the row is about
      12 changes of controllers followed            a ReplicaSet and 3 Pods created, 3 Pods deleted
      3 Pods ready                                  their states at the end

One page reads a bounded part of the log, whatever its length. Causes are those of ``causes_of``
(api/explaining/causes.py) over the changes that follow within FOLLOWING revisions, and the recorded ones beyond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import trio

from kubechronicle.actors.history.change_records import SecretValues, change_of, matches
from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.explaining.causes import CONTROLLERS, ChangeCause, Fact, because, causes_of, fact_of
from kubechronicle.api.explaining.incidents import grant_of
from kubechronicle.api.explaining.states import CRASH, FAILED, GONE, KINDS, stored_state
from kubechronicle.api.history.cells import NOISY_RESOURCES, action_of
from kubechronicle.api.history.revisions import API_VERSION, masked_change, revision_object
from kubechronicle.api.history.secret_values import RESOURCE as SECRETS
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text, pair_size
from kubechronicle.eventlog.records import Operation, Record

PAGE: Final = 60
"""Rows of a page."""
MOST_SCANNED: Final = 1000
"""Changes that are read for one page; with a text, those whose objects are searched."""
SPAN: Final = 200_000
"""Revisions that one page looks back: changes of people may be rare among those of controllers."""
FOLLOWING: Final = 300
"""Revisions after a change in which its consequences are searched."""
MOST_FOLLOWING: Final = 1200
"""Changes that are read as consequences for one page, those of the newest rows first."""
MOST_RECORDED: Final = 300
"""Consequences with a recorded cause that are read for one page, in addition."""
SHOWN: Final = 20
"""Consequences of a row that come with it."""
NAMES: Final = 4
"""Names that a count of consequences has."""
CHUNK: Final = 200
AT_ONCE: Final = 10
"""Changes that are compared before other requests have their turn."""
WITHOUT: Final = (*NOISY_RESOURCES, "ipaddresses.networking.k8s.io")
NOT_CONTROLLERS: Final = tuple(("user_name", Text(value=each, equal=False, prefix=True)) for each in CONTROLLERS)

Pair = tuple[Record, Record | None]


@dataclass(frozen=True, slots=True)
class ActivityOptions:
    """``everything``: with cluster-scoped objects. ``controllers``: with rows of controllers. ``text``: changes that
    put this text into an object, or removed it."""

    everything: bool = False
    controllers: bool = False
    text: str = ""


@dataclass(slots=True)
class _Seen:
    """One change with what the rows need of it. ``state``: of the object after it, "" if the kind has none."""

    fact: Fact
    state: str


@dataclass(slots=True)
class _Followed:
    """The consequences of one row."""

    facts: list[Fact] = field(default_factory=list)
    pods: dict[str, str] = field(default_factory=dict)


async def activity(
    reads: LogChanges, selected: RevisionSelection, options: ActivityOptions, *, values: SecretValues | None = None
) -> dict[str, Any]:
    """Return the RevisionActivity of a selection.

    ``next``: the revision up to which the next page reads (revision.to); "" at the end.
    ``through``: false if the consequences of some rows were not all read.
    """
    reading = _Reading(reads, values or SecretValues())
    newest = await reads.newest(None)
    query = replace(
        selected.query,
        until=min(selected.query.until, newest),
        newest_first=True,
        not_resources=tuple(sorted({*selected.query.not_resources, *WITHOUT})),
    )
    if options.everything and not query.namespace:
        query = replace(query, namespaced=None)
    if not options.controllers:
        query = replace(query, texts=(*query.texts, *NOT_CONTROLLERS))
    roots, following = ([], 0) if selected.is_empty else await reading.roots(query, selected, options)
    scope = ChangeQuery(namespaced=query.namespaced, namespace=query.namespace, newest_first=False)
    seen, through = await reading.followed(roots, scope, newest)
    ordered = sorted(seen.values(), key=lambda each: each.fact.revision)
    causes = await Pauses().take(causes_of([each.fact for each in ordered]))
    rows = _rows([root.fact for root in roots], ordered, causes)
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionActivity",
        "metadata": {"resourceVersion": str(newest)},
        "rows": rows,
        "next": str(following) if following else "",
        "through": through,
    }


class _Reading:
    """Reads changes with pauses for other requests."""

    def __init__(self, reads: LogChanges, values: SecretValues) -> None:
        self._reads, self._values, self._read = reads, values, 0

    async def roots(
        self, query: ChangeQuery, selected: RevisionSelection, options: ActivityOptions
    ) -> tuple[list[_Seen], int]:
        """Return the changes of one page, newest first, and the revision at which the next page begins; 0: the end."""
        found, scanned = list[_Seen](), 0
        first = max(query.after, min(query.until, await self._reads.newest(None)) - SPAN)
        end = first if first > query.after else 0
        query = replace(query, after=first)
        while scanned < MOST_SCANNED:
            chunk = await self._reads.log.changes(query, limit=CHUNK)
            for record, before in chunk:
                scanned += 1
                if await self._is_wanted(record, before, selected, options):
                    seen = await self._seen(record, before)
                    if not _is_routine(seen.fact):
                        found.append(seen)
                if len(found) == PAGE:
                    return found, record.revision - 1
            if chunk.is_last(CHUNK):
                return found, end
            query = replace(query, until=chunk[-1][0].revision - 1)
        return found, query.until

    async def _is_wanted(
        self, record: Record, before: Record | None, selected: RevisionSelection, options: ActivityOptions
    ) -> bool:
        """Tell whether a change has the selected labels, fields and text. They must not reveal what may not be read."""
        if not (selected.needs_objects or options.text):
            return True
        if not await self._reads.may_read(record):
            return False
        if options.text and not _concerns_text(record, before, options.text):
            return False
        if not selected.needs_objects:
            return True
        size = pair_size((record, before))
        await self._reads.turn.begin(size)
        return await self._reads.turn.run(size, partial(matches, selected, record, before))

    async def followed(self, roots: Sequence[_Seen], scope: ChangeQuery, newest: int) -> tuple[dict[int, _Seen], bool]:
        """Return the changes after each root by revision, the roots too, and whether all were read.

        ``scope``: the namespaces whose revisions the client may list.
        """
        seen = {root.fact.revision: root for root in roots}
        left, through = MOST_FOLLOWING, True
        for after, until in _stretches([root.fact.revision for root in roots], newest):
            query = replace(scope, after=after, until=until, not_resources=WITHOUT)
            left -= await self._add(seen, query, left)
            if left <= 0:
                through = False
                break
        if roots:
            numbers = tuple(sorted(root.fact.revision for root in roots))
            recorded = replace(scope, causes=numbers, after=numbers[0])
            await self._add(seen, recorded, MOST_RECORDED)
        return seen, through

    async def _add(self, seen: dict[int, _Seen], query: ChangeQuery, most: int) -> int:
        """Add the changes of a query, at most ``most``, and return their number."""
        number = 0
        while number < most:
            limit = min(CHUNK, most - number)
            chunk = await self._reads.log.changes(query, limit=limit)
            for record, before in chunk:
                if record.revision not in seen:
                    seen[record.revision] = await self._seen(record, before)
            number += len(chunk)
            if chunk.is_last(limit):
                break
            query = replace(query, after=chunk[-1][0].revision)
        return number

    async def _seen(self, record: Record, before: Record | None) -> _Seen:
        readable, size = await self._reads.may_read(record), pair_size((record, before))
        await self._reads.turn.begin(size)
        work = partial(_seen, record, before, self._values, self._reads.reads.name, readable=readable)
        self._read += 1
        if self._read % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        return await self._reads.turn.run(size, work)


def _seen(record: Record, before: Record | None, values: SecretValues, database: str, *, readable: bool) -> _Seen:
    change = masked_change(change_of(record, before, database), values.key)
    document = revision_object(change, content="", readable=readable)
    if readable and (grant := grant_of(change)):
        document["grants"] = grant
    state = ""
    if readable and record.key.resource in KINDS and not (record.erased or record.problem):
        state = GONE if record.operation is Operation.DELETE else stored_state(record.key.resource, record.body)
    return _Seen(fact_of(change, document, readable=readable), state)


def _concerns_text(record: Record, before: Record | None, text: str) -> bool:
    """Tell whether a change put a text into an object, or removed it. Values of Secrets are not searched."""
    if record.key.resource == SECRETS or record.erased or record.problem:
        return False
    wanted = text.encode()
    now = record.operation is not Operation.DELETE and wanted in record.body
    return now is not (before is not None and wanted in before.body)


def _is_routine(fact: Fact) -> bool:
    """Tell whether a change is a report of a status or a heartbeat, by a program."""
    is_program = fact.user.startswith("system:")
    heartbeat = fact.document["operation"] == "Update" and not fact.changed and not fact.document.get("redacted")
    return is_program and (fact.is_report or fact.is_noise or heartbeat)


def _stretches(revisions: Sequence[int], newest: int) -> list[tuple[int, int]]:
    """Return (after, until) of the revisions after each of these, those of the newest first, each revision once.

    Example: 41 and 40, FOLLOWING 300, become (39, 341).
    """
    found: list[tuple[int, int]] = []
    for revision in sorted(revisions, reverse=True):
        after, until = revision - 1, min(revision + FOLLOWING, newest)
        if found and until >= found[-1][0]:
            found[-1] = (after, found[-1][1])
        else:
            found.append((after, until))
    return found


def _rows(roots: Sequence[Fact], ordered: Sequence[_Seen], causes: Mapping[int, ChangeCause]) -> list[dict[str, Any]]:
    """Return the rows of the roots, in their order."""
    root_of = {root.revision: root.revision for root in roots}
    rows = {root.revision: _Followed() for root in roots}
    for each in ordered:
        fact = each.fact
        if fact.revision in rows:
            continue
        cause = causes.get(fact.revision)
        root = root_of.get(cause.revision) if cause is not None else None
        if root is None:
            continue
        root_of[fact.revision] = root
        if not fact.is_noise:
            rows[root].facts.append(fact)
        if fact.resource == "pods" and each.state:
            _note_pod(rows[root].pods, fact.uid, each.state)
    return [_row(root, rows[root.revision], causes) for root in roots]


def _note_pod(pods: dict[str, str], uid: str, state: str) -> None:
    """Note the newest state of a Pod. A Pod that crashed and was deleted counts as one that crashed."""
    if not (state == GONE and pods.get(uid) in (CRASH, FAILED)):
        pods[uid] = state


def _row(root: Fact, followed: _Followed, causes: Mapping[int, ChangeCause]) -> dict[str, Any]:
    changes = [fact for fact in followed.facts if not fact.is_report]
    kinds: dict[tuple[str, str], list[Fact]] = {}
    for fact in changes:
        kinds.setdefault((fact.resource, fact.document["operation"]), []).append(fact)
    return {
        "revision": root.document | because(causes.get(root.revision)),
        "action": action_of(root.document),
        "followed": len(followed.facts),
        "kinds": [
            {
                "resource": resource,
                "kind": facts[0].document["object"].get("kind", ""),
                "operation": operation,
                "objects": len({fact.uid for fact in facts}),
                "names": list(dict.fromkeys(fact.name for fact in facts))[:NAMES],
            }
            for (resource, operation), facts in kinds.items()
        ],
        "pods": dict(Counter(followed.pods.values())),
        "consequences": [fact.document | because(causes.get(fact.revision)) for fact in changes[:SHOWN]],
        "until": followed.facts[-1].document["time"] if followed.facts else root.document["time"],
    }
