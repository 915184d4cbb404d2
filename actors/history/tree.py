"""RevisionTree: an object with owners and dependents in a period, their changes and Events.

The objects are those that existed at the beginning, and those that changed since. They are found by one reading of the
namespace (of the cluster-scoped objects, for such an object). Objects that the client may not read are left out.

Trees of objects over time: an object, its owners and its dependents in a period, however short they lived.

    Deployment web  ├────●──────●────┤          two ReplicaSets, one for each image
      ReplicaSet a  ├──────────●┤
        Pod a-1     ├────────┤
      ReplicaSet b             ├●────┤

Pure. An object is known by its uid, so a name that was used again is another object.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import orjson
import trio

from kubechronicle.actors.history.change_records import SecretValues, change_of
from kubechronicle.actors.history.log_changes import LogChanges, Share
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.errors import status
from kubechronicle.api.explaining.causes import Fact, because, causes_of, fact_of
from kubechronicle.api.history.cells import NOISY_RESOURCES
from kubechronicle.api.history.revisions import API_VERSION, masked_change, revision_object
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.errors import Compacted
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text, pair_size
from kubechronicle.eventlog.records import Record

MOST_LEVELS: Final = 10
"""Levels of owners and dependents. Garbage collection has no limit, but objects that own each other have no end."""


class _Reference(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct):
    owners: list[_Reference] | None = msgspec.field(name="ownerReferences", default=None)


class _Involved(msgspec.Struct):
    uid: str = ""


class _Head(msgspec.Struct):
    """The members of an object that a tree needs."""

    metadata: _Metadata | None = None
    involved: _Involved | None = msgspec.field(name="involvedObject", default=None)


_HEAD: Final = msgspec.json.Decoder(_Head)


class TreeNode(NamedTuple):
    """An object of a tree. ``owners``: the uids of all owners that it had in the period."""

    uid: str
    resource: str
    namespace: str
    name: str
    owners: tuple[str, ...]


def owners_in(body: bytes) -> tuple[str, ...]:
    """Return the uids of an object's owners. ``body``: its JSON."""
    metadata = _HEAD.decode(body).metadata
    return tuple(each.uid for each in metadata.owners or ()) if metadata is not None else ()


def involved_in(body: bytes) -> str:
    """Return the uid of the object that an Event is about. ``body``: the Event's JSON."""
    involved = _HEAD.decode(body).involved
    return involved.uid if involved is not None else ""


def with_owner(nodes: dict[str, TreeNode], node: TreeNode) -> None:
    """Add an object, or the owners that it got later."""
    known = nodes.get(node.uid)
    owners = node.owners if known is None else tuple(dict.fromkeys((*known.owners, *node.owners)))
    nodes[node.uid] = node._replace(owners=owners)


def tree_of(nodes: Mapping[str, TreeNode], roots: Iterable[str]) -> dict[str, int]:
    """Return the uids of a tree with their levels: owners above the roots have negative ones. Each is there once."""
    dependents: dict[str, list[str]] = {}
    for node in nodes.values():
        for owner in node.owners:
            dependents.setdefault(owner, []).append(node.uid)
    levels = dict.fromkeys(roots, 0)
    above = list(levels)
    for level in range(1, MOST_LEVELS):
        above = [owner for uid in above for owner in nodes[uid].owners if owner in nodes and owner not in levels]
        levels |= dict.fromkeys(above, -level)
    below = [uid for uid, level in levels.items() if level == 0]
    for level in range(1, MOST_LEVELS):
        below = [each for uid in below for each in dependents.get(uid, ()) if each not in levels]
        levels |= dict.fromkeys(below, level)
    return levels


CHUNK: Final = 500
MOST_READ: Final = 50_000
"""Objects and changes that are read to find the tree."""
MOST_OBJECTS: Final = 200
MOST_CHANGES: Final = 2000
"""Objects and changes of a tree, and its Events."""
AT_ONCE: Final = 50
EVENTS: Final = "events"


async def tree(
    log: RevisionLog,
    reads: LogChanges,
    selected: RevisionSelection,
    registry: Registry,
    *,
    values: SecretValues | None = None,
    events: Share | None = None,
) -> dict[str, Any]:
    """Return the RevisionTree of the selected object in the selected period. StatusError 400.

    ``events``: the log of Events, if it is another one; ``truncated``: the period has more than is read.
    """
    name = _name_in(selected)
    newest, query = await reads.newest(None), selected.query
    until, after = min(query.until, newest), query.after
    scope = ChangeQuery(after=after, until=until, namespaced=query.namespaced, namespace=query.namespace)
    finding = _Finding(log, reads, registry)
    nodes = await finding.nodes(scope)
    roots = [node.uid for node in nodes.values() if node.resource == query.resources[0] and node.name == name]
    levels = tree_of(nodes, roots)
    members = sorted(levels, key=lambda uid: (levels[uid], uid))
    shown = members[:MOST_OBJECTS]
    changes, more = await _changes(log, reads, scope, [nodes[uid] for uid in shown], values or SecretValues())
    reported = await _events(finding, events, scope, frozenset(shown)) if shown else {}
    kinds = {rt.resource: rt.kind for rt in registry.stored()}
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionTree",
        "metadata": {"resourceVersion": str(newest)},
        "after": str(after),
        "until": str(until),
        "truncated": finding.truncated or more or len(shown) < len(members),
        "left": finding.left,
        "objects": [
            {
                "uid": uid,
                "resource": nodes[uid].resource,
                "kind": kinds.get(nodes[uid].resource, ""),
                "namespace": nodes[uid].namespace,
                "name": nodes[uid].name,
                "level": levels[uid],
                "owners": [owner for owner in nodes[uid].owners if owner in levels],
                "existed": uid in finding.at_first,
                "revisions": changes.get(uid, []),
                "events": reported.get(uid, []),
            }
            for uid in shown
        ],
    }


async def _events(
    finding: _Finding, events: Share | None, scope: ChangeQuery, uids: frozenset[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the Events about these objects from the logs that hold them, by uid, in the order of their times."""
    found = await finding.events(scope, uids)
    if events is None:
        return found
    reads, query = events.changes, events.query
    until = min(query.until, await reads.newest(None))
    other = _Finding(reads.log, reads, finding.registry)
    for uid, more in (await other.events(replace(scope, after=query.after, until=until), uids)).items():
        found[uid] = sorted([*found.get(uid, ()), *more], key=lambda event: event["time"])
    finding.truncated |= other.truncated
    return found


def _name_in(selected: RevisionSelection) -> str:
    """Return the name of the selected object. StatusError 400: none is selected."""
    texts = dict(selected.query.texts)
    name = texts.get("name", Text(value=""))
    if len(selected.query.resources) != 1 or not name.value or not name.equal or name.prefix or selected.needs_objects:
        raise status.bad_request("a tree needs one object: fieldSelector=object.resource=deployments,object.name=web")
    if selected.query.namespaced and not selected.query.namespace:
        raise status.bad_request("a tree needs the revisions of one namespace, or clusterrevisions")
    return name.value


class _Finding:
    """The search for the objects of a tree.

    ``at_first``: the uids of objects that existed at the beginning.
    ``left``: resources whose history begins after the beginning of the period.
    """

    def __init__(self, log: RevisionLog, reads: LogChanges, registry: Registry) -> None:
        self._log = log
        self._reads = reads
        self.registry = registry
        self._read = 0
        self.truncated = False
        self.at_first: set[str] = set()
        self.left: list[str] = []

    async def nodes(self, scope: ChangeQuery) -> dict[str, TreeNode]:
        """Return the objects of the period that the client may read, by uid."""
        nodes: dict[str, TreeNode] = {}
        async with aclosing(self._records_at_first(scope)) as records:
            async for record in records:
                self.at_first.add(record.uid)
                with_owner(nodes, _node_of(record))
        changed = replace(scope, not_resources=NOISY_RESOURCES, newest_first=False, with_replaced=False)
        async with aclosing(self._records(changed)) as records:
            async for record in records:
                with_owner(nodes, _node_of(record))
        return nodes

    async def _records_at_first(self, scope: ChangeQuery) -> AsyncGenerator[Record, None]:
        """Yield the objects as they were at the beginning."""
        for rt in self.registry.stored():
            if rt.namespaced is not scope.namespaced or rt.resource in NOISY_RESOURCES or not scope.after:
                continue
            after: tuple[str, str] | None = None
            while True:
                try:
                    chunk = await self._log.list_at(
                        rt.resource, revision=scope.after, namespace=scope.namespace, after=after, limit=CHUNK
                    )
                except Compacted:
                    self.left.append(rt.resource)
                    break
                async with aclosing(self._usable(chunk)) as records:
                    async for record in records:
                        yield record
                if chunk.is_last(CHUNK) or self.truncated:
                    break
                after = chunk[-1].key[1:]

    async def _records(self, query: ChangeQuery) -> AsyncGenerator[Record, None]:
        """Yield the records of changes, in order."""
        while not self.truncated:
            chunk = await self._log.changes(query, limit=CHUNK)
            async with aclosing(self._usable([record for record, _ in chunk])) as records:
                async for record in records:
                    yield record
            if chunk.is_last(CHUNK):
                return
            query = replace(query, after=chunk[-1][0].revision)

    async def _usable(self, records: Sequence[Record]) -> AsyncGenerator[Record, None]:
        """Yield the records that the client may read, with pauses for other requests."""
        for record in records:
            self._read += 1
            if self._read >= MOST_READ:
                self.truncated = True
                return
            if self._read % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if not (record.erased or record.problem) and await self._reads.may_read(record):
                yield record

    async def events(self, scope: ChangeQuery, uids: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the Events about these objects, by uid: each with its last state in the period."""
        if not scope.namespace:
            return {}
        found: dict[str, tuple[str, dict[str, Any]]] = {}
        query = replace(scope, resources=(EVENTS,), newest_first=False, with_replaced=False)
        async with aclosing(self._records(query)) as records:
            async for record in records:
                uid = involved_in(record.body)
                if uid in uids and len(found) < MOST_CHANGES:
                    found[record.uid] = (uid, _event(record, self._reads.reads.name))
        events: dict[str, list[dict[str, Any]]] = {}
        for uid, event in found.values():
            events.setdefault(uid, []).append(event)
        return events


def _node_of(record: Record) -> TreeNode:
    return TreeNode(record.uid, *record.key, owners_in(record.body))


def _event(record: Record, database: str) -> dict[str, Any]:
    event = orjson.loads(record.body)
    return {
        "revision": str(record.revision),
        "time": record.committed_at,
        **({"database": database} if database else {}),
        **{name: event.get(name) for name in ("type", "reason", "message", "count") if event.get(name)},
    }


async def _changes(
    log: RevisionLog, reads: LogChanges, scope: ChangeQuery, nodes: Sequence[TreeNode], values: SecretValues
) -> tuple[dict[str, list[dict[str, Any]]], bool]:
    """Return the revisions of the objects in the period, by uid, and whether there are more."""
    facts: list[Fact] = []
    left = MOST_CHANGES
    for node in nodes:
        query = replace(
            scope,
            resources=(node.resource,),
            name=node.name,
            texts=(("uid", Text(value=node.uid)),),
            newest_first=False,
        )
        while left:
            limit = min(left, CHUNK)
            chunk = await log.changes(query, limit=limit)
            for record, before in chunk:
                size = pair_size((record, before))
                readable = await reads.may_read(record)
                await reads.turn.begin(size)
                work = partial(_fact, record, before, values, readable=readable)
                facts.append(await reads.turn.run(size, work))
            await trio.lowlevel.checkpoint()
            left -= len(chunk)
            if chunk.is_last(limit):
                break
            query = replace(query, after=chunk[-1][0].revision)
    causes = await Pauses().take(causes_of(sorted(facts, key=lambda fact: fact.revision)))
    found: dict[str, list[dict[str, Any]]] = {}
    for fact in facts:
        found.setdefault(fact.uid, []).append(fact.document | because(causes.get(fact.revision)))
    return found, not left


def _fact(record: Record, before: Record | None, values: SecretValues, *, readable: bool) -> Fact:
    change = masked_change(change_of(record, before), values.key)
    return fact_of(change, revision_object(change, content="", readable=readable), readable=readable)
