"""RevisionCauses: a change with the chain of its causes, up to a person, a program or the server's own start; and
RevisionConsequences: the deletions that followed from changes.

    revision 9    the garbage collector deletes a Pod          recorded: 8
    revision 8    the garbage collector deletes a ReplicaSet   recorded: 7
    revision 7    jane deletes the Deployment                  none

``cause_of`` (api/explaining/causes.py) asks; the answers come from index ranges of the log, so that a chain costs the
same in a log of any length. A change of a namespace, or of cluster-scoped objects, whose revisions the client may not
list ends the chain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson
import trio

from kubechronicle.actors.history.change_records import SecretValues, change_of
from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.explaining.causes import (
    AUTOSCALERS,
    CONTROLLERS,
    NAMESPACES,
    Asked,
    Asking,
    ChangeCause,
    Fact,
    Seen,
    because,
    cause_of,
    causes_of,
    explained,
    fact_of,
)
from kubechronicle.api.history.cells import NOISY_RESOURCES
from kubechronicle.api.history.revisions import API_VERSION, masked_change, revision_object
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text, pair_size
from kubechronicle.eventlog.records import Operation, Record

MOST_LINKS: Final = 20
"""Links of a chain. A cause is always earlier, so a chain has an end; this bounds the work."""
SEARCHED: Final = 100
"""Changes of one object that are searched for the one that others react to."""
CHUNK: Final = 10
"""Changes read at once: most often the newest is the one."""

MayList = Callable[[str], Awaitable[int]]
"""Return the first revision of a namespace ("": of cluster-scoped objects) that the client may list, NEVER for none."""
OfRevision = Callable[[int], Awaitable[LogChanges]]
"""Return the changes of the log that holds a revision."""


async def causes(
    of_revision: OfRevision, may_list: MayList, registry: Registry, number: int, *, values: SecretValues | None = None
) -> dict[str, Any]:
    """Return the RevisionCauses of a change. ``stopped``: why the chain ends before its beginning is known."""
    chain = _Chain(of_revision, may_list, registry, values or SecretValues())
    links, stopped = await chain.links(number)
    return {"apiVersion": API_VERSION, "kind": "RevisionCauses", "links": links} | (
        {"stopped": stopped} if stopped else {}
    )


class _Chain:
    def __init__(self, of_revision: OfRevision, may_list: MayList, registry: Registry, values: SecretValues) -> None:
        self._of_revision, self._may_list, self._registry, self._values = of_revision, may_list, registry, values

    async def links(self, number: int) -> tuple[list[dict[str, Any]], str]:
        """Return the revisions from a change to its first cause, and why there may be more."""
        found: list[dict[str, Any]] = []
        while number and len(found) < MOST_LINKS:
            changes = await self._of_revision(number)
            pair = await _one(changes, number)
            if pair is None:
                return found, f"revision {number} is not kept any more"
            record, before = pair
            if number < await self._may_list(record.key.namespace):
                where = f"namespace {record.key.namespace}" if record.key.namespace else "cluster-scoped objects"
                return found, f"you may not list revision {number}, of {where}"
            fact = await self._fact(changes, record, before)
            cause = await self._answered(changes, cause_of(fact))
            found.append(_link(fact, cause))
            number = cause.revision if cause is not None and cause.revision < number else 0
        return found, f"more than {MOST_LINKS} links" if number else ""

    async def _answered(self, changes: LogChanges, asking: Asking) -> ChangeCause | None:
        try:
            asked = next(asking)
            while True:
                asked = asking.send(await self._answer(changes, asked))
        except StopIteration as stop:
            result: ChangeCause | None = stop.value
            return result

    async def _answer(self, changes: LogChanges, asked: Asked) -> Seen | None:
        """Return the change that a question is about, from the log."""
        fact, owner = asked.fact, asked.owner
        resource, namespace, name, uid = fact.resource, fact.namespace, fact.name, fact.uid
        if asked.about == "autoscaler":
            return await self._autoscaler(changes, fact)
        if asked.about == "namespace":
            resource, namespace, name, uid = NAMESPACES, "", fact.namespace, ""
        elif asked.about == "node":
            resource, namespace, name, uid = "nodes", "", fact.node, ""
        elif owner is not None:
            rt = self._registry.by_api_version(owner.api_version, owner.kind)
            if rt is None:
                return None
            resource, name, uid = rt.resource, owner.name, owner.uid
            namespace = fact.namespace if rt.namespaced else ""
        query = ChangeQuery(
            until=fact.revision - 1,
            namespaced=bool(namespace),
            namespace=namespace,
            name=name,
            resources=(resource,),
            texts=(("uid", Text(value=uid)),) if uid else (),
        )
        return await self._last(changes, query, deletion=asked.about in ("namespace", "mark"))

    async def _last(self, changes: LogChanges, query: ChangeQuery, *, deletion: bool) -> Seen | None:
        """Return the last matching change that is no report, or with ``deletion`` the first request of the deletion."""
        seen, read = None, 0
        while read < SEARCHED:
            chunk = await changes.log.changes(query, limit=CHUNK)
            for record, before in chunk:
                fact = await self._fact(changes, record, before)
                if deletion and fact.is_deletion:
                    seen = _seen(fact)
                elif deletion and (record.operation is Operation.CREATE or seen is not None):
                    return seen
                elif not deletion and (not fact.is_report or record.operation is Operation.CREATE):
                    return _seen(fact)
            if chunk.is_last(CHUNK):
                return seen
            query = replace(query, until=chunk[-1][0].revision - 1)
            read += len(chunk)
        return seen

    async def _autoscaler(self, changes: LogChanges, scaled: Fact) -> Seen | None:
        """Return the last change of the autoscaler of an object that is not the controller's own report."""
        query = ChangeQuery(
            until=scaled.revision - 1,
            namespaced=True,
            namespace=scaled.namespace,
            resources=(AUTOSCALERS,),
            texts=(("user_name", Text(value=scaled.user, equal=False)),),
        )
        read = 0
        while read < SEARCHED:
            chunk = await changes.log.changes(query, limit=CHUNK)
            for record, before in chunk:
                fact = await self._fact(changes, record, before)
                if fact.target == scaled.scaled:
                    return _seen(fact)
            if chunk.is_last(CHUNK):
                return None
            query = replace(query, until=chunk[-1][0].revision - 1)
            read += len(chunk)
        return None

    async def _fact(self, changes: LogChanges, record: Record, before: Record | None) -> Fact:
        readable, size = await changes.may_read(record), pair_size((record, before))
        await changes.turn.begin(size)
        return await changes.turn.run(
            size, partial(_fact, record, before, self._values, changes.reads.name, readable=readable)
        )


async def _one(changes: LogChanges, number: int) -> tuple[Record, Record | None] | None:
    found: Sequence[tuple[Record, Record | None]] = await changes.log.changes(
        ChangeQuery(after=number - 1, until=number), limit=1
    )
    return found[0] if found else None


def _seen(fact: Fact) -> Seen:
    return Seen(fact.revision, fact.is_deletion, fact.is_controller)


def _fact(record: Record, before: Record | None, values: SecretValues, database: str, *, readable: bool) -> Fact:
    change = masked_change(change_of(record, before, database), values.key)
    return fact_of(change, revision_object(change, content="", readable=readable), readable=readable)


def _link(fact: Fact, cause: ChangeCause | None) -> dict[str, Any]:
    """Return the revision of a link, with its cause and how that is known."""
    if cause is None:
        return dict(fact.document)
    return fact.document | {"because": str(cause.revision), "known": cause.kind, "explained": explained(cause)}


MOST_ROOTS: Final = 5000
MOST_CONSEQUENCES: Final = 5000
AT_ONCE: Final = 500
"""Causes in one query of the log."""
MOST_INFERRED: Final = 20_000
"""Changes after the first root that are searched for consequences that nobody recorded."""


async def consequences(
    changes: LogChanges,
    may_list: MayList,
    selected: RevisionSelection,
    *,
    everything: bool,
    values: SecretValues | None = None,
) -> dict[str, Any]:
    """Return the RevisionConsequences of the selected changes: the deletions that followed from them, oldest first.

    Each is a Revision with its objects as the log holds them, and with its cause. ``hidden``: the number of those that
    the client may not list. ``truncated``: there are more. ``inferredUntil``: up to this revision, those that nobody
    recorded were searched, too.
    """
    finding = _Consequences(changes, values or SecretValues())
    newest = await changes.newest(None)
    query = replace(selected.query, newest_first=False, with_replaced=False)
    if everything and not query.namespace:
        query = replace(query, namespaced=None)
    roots = [] if selected.is_empty else [record.revision for record, _ in await _all(changes, query, MOST_ROOTS)]
    await finding.recorded(roots)
    until = await finding.inferred(roots, newest) if roots else newest
    items, hidden, listed = list[Any](), 0, dict[str, int]()
    for number in sorted(finding.causes):
        pair = await _one(changes, number)
        if pair is None:
            continue
        record, before = pair
        namespace = record.key.namespace
        if namespace not in listed:
            listed[namespace] = await may_list(namespace)
        if number < listed[namespace]:
            hidden += 1
            continue
        entry = await changes.entry(record, before, content="states")
        items.append(orjson.loads(entry.json) | because(finding.causes[number]))
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionConsequences",
        "metadata": {"resourceVersion": str(newest)},
        "items": items,
        "hidden": hidden,
        "truncated": finding.truncated,
        "inferredUntil": str(until),
    }


async def _all(changes: LogChanges, query: ChangeQuery, most: int) -> list[tuple[Record, Record | None]]:
    """Return the matching changes, oldest first, at most ``most``."""
    found: list[tuple[Record, Record | None]] = []
    while len(found) < most:
        limit = min(AT_ONCE, most - len(found))
        chunk = await changes.log.changes(query, limit=limit)
        found += chunk
        await trio.lowlevel.checkpoint()
        if chunk.is_last(limit):
            break
        query = replace(query, after=chunk[-1][0].revision)
    return found


class _Consequences:
    """The deletions that follow from changes. ``causes``: by revision."""

    def __init__(self, changes: LogChanges, values: SecretValues) -> None:
        self._changes, self._values = changes, values
        self.causes: dict[int, ChangeCause] = {}
        self.truncated = False

    async def recorded(self, roots: Sequence[int]) -> None:
        """Follow the recorded causes, level by level."""
        seen, level = set(roots), sorted(roots)
        while level and not self.truncated:
            below: list[int] = []
            for start in range(0, len(level), AT_ONCE):
                part = tuple(level[start : start + AT_ONCE])
                query = ChangeQuery(causes=part, after=part[0], newest_first=False)
                for record, before in await _all(self._changes, query, MOST_CONSEQUENCES):
                    if record.revision in seen or not self._follows(record):
                        continue
                    seen.add(record.revision)
                    below.append(record.revision)
                    if _deletes(record, before):
                        self.causes[record.revision] = ChangeCause(record.who.cause if record.who else 0, "recorded")
            self.truncated = len(self.causes) >= MOST_CONSEQUENCES
            level = sorted(below)

    def _follows(self, record: Record) -> bool:
        """Return False for a client's own change, such as a restore: it is no consequence of what it undoes."""
        return record.who is not None and record.who.user.startswith(CONTROLLERS)

    async def inferred(self, roots: Sequence[int], newest: int) -> int:
        """Add the deletions by programs that record no cause. Return the last revision that was searched."""
        query = ChangeQuery(after=min(roots) - 1, until=newest, newest_first=False, not_resources=NOISY_RESOURCES)
        pairs = await _all(self._changes, query, MOST_INFERRED)
        facts: list[Fact] = []
        for record, before in pairs:
            readable, size = await self._changes.may_read(record), pair_size((record, before))
            await self._changes.turn.begin(size)
            make = partial(_fact, record, before, self._values, "", readable=readable)
            facts.append(await self._changes.turn.run(size, make))
        found: dict[int, ChangeCause] = await Pauses().take(causes_of(facts))
        following = set(roots) | self.causes.keys()
        for fact, (record, before) in zip(facts, pairs, strict=True):
            cause = found.get(fact.revision)
            if cause is None or cause.revision not in following or fact.revision in following:
                continue
            if fact.is_controller:
                following.add(fact.revision)
                if _deletes(record, before):
                    self.causes[fact.revision] = cause
        return pairs[-1][0].revision if len(pairs) >= MOST_INFERRED else newest


def _deletes(record: Record, before: Record | None) -> bool:
    """Tell whether a change ended an object, or marked it for deletion."""
    if record.operation is Operation.DELETE:
        return before is None or b'"deletionTimestamp":' not in before.body
    return before is not None and b'"deletionTimestamp":' in record.body and b'"deletionTimestamp":' not in before.body
