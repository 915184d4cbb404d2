"""Graph of owners and dependents, and the objects to process after a change. Pure: no store, no clock.

The graph has the key of every object by uid. It has a node only for objects with owner references, and for objects
whose deletion waits for their dependents. The rest, most of a cluster, costs one dictionary item each and no parsing.

    ReplicaSet r (uid 1) <- Pod p (uid 2)     put(p): dependents of 1 are {p}
    r is deleted                              remove(r): process p
    r is in foreground deletion               put(r): process r and p; then remove(p): process r

A reference may name the uid of an owner that does not exist. The graph does not know: the collector's workers read the
store consistently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubechronicle.api.pipeline.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kubechronicle.eventlog.entries import Ending, Entry
from kubechronicle.eventlog.records import Key

# Quotes inside a JSON string are escaped, so these texts are always member names. They may belong to a template; then
# the object is parsed in vain.
_OWNED = b'"ownerReferences":['
_DELETED = b'"deletionTimestamp":'


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """One of an object's ownerReferences. ``blocks``: the owner's foreground deletion waits for the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False


def group_of(reference: OwnerReference) -> str:
    return reference.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """The fields of an object that the collector needs.

    ``deleting``: in deletion.
    ``foreground``: has the finalizer foregroundDeletion.
    ``orphan``: has the finalizer orphan.
    """

    key: Key
    uid: str
    owners: tuple[OwnerReference, ...] = ()
    deleting: bool = False
    foreground: bool = False
    orphan: bool = False

    @property
    def waiting(self) -> bool:
        """True if the object is in deletion and waits for its dependents to be deleted first."""
        return self.deleting and self.foreground

    @property
    def orphaning(self) -> bool:
        """True if the object is in deletion and waits for its dependents to be orphaned."""
        return self.deleting and self.orphan


def node_of(entry: Entry) -> GraphNode | None:
    """Return the node of an object; None if it needs none."""
    json = entry.json
    if _OWNED not in json and _DELETED not in json:
        return None
    return _node(entry.key, entry.uid, entry.ending())


def node_of_metadata(key: Key, uid: str, metadata: Mapping[str, Any]) -> GraphNode | None:
    """Return the node of an object with this metadata; None if it needs none."""
    deleted, owners = metadata.get("deletionTimestamp"), metadata.get("ownerReferences") or ()
    return _node(key, uid, Ending(deleted, tuple(metadata.get("finalizers") or ()), tuple(owners)))


def _node(key: Key, uid: str, ending: Ending) -> GraphNode | None:
    owners = tuple(map(reference_of, ending.owners or ()))
    finalizers = ending.finalizers or ()
    node = GraphNode(
        key=key,
        uid=uid,
        owners=owners,
        deleting=ending.deleted is not None,
        foreground=FOREGROUND_FINALIZER in finalizers,
        orphan=ORPHAN_FINALIZER in finalizers,
    )
    return node if owners or node.waiting or node.orphaning else None


def reference_of(owner: Mapping[str, Any]) -> OwnerReference:
    """Return the reference of a member of ownerReferences."""
    return OwnerReference(
        owner.get("apiVersion", ""),
        owner.get("kind", ""),
        owner.get("name", ""),
        owner.get("uid", ""),
        bool(owner.get("blockOwnerDeletion")),
    )


@dataclass(frozen=True, slots=True)
class Effects:
    """The work that follows from a change of the graph.

    ``to_process``: objects to process; perhaps very many, and some twice.
    ``check``: a node with new owners, to process unless all of them exist.
    ``foreign``: dependents, each with a reference to an owner in another namespace.
    """

    to_process: Collection[Key] = ()
    check: GraphNode | None = None
    foreign: Collection[tuple[GraphNode, OwnerReference]] = ()


NOTHING = Effects()


class Graph:
    """See the head of this file. Invariant: ``dependents(uid)`` are the nodes with a reference to the uid."""

    __slots__ = ("_dependents", "_nodes", "_places", "_waiting")

    def __init__(self) -> None:
        self._places: dict[str, Key] = {}
        self._nodes: dict[Key, GraphNode] = {}
        self._dependents: dict[str, dict[Key, GraphNode]] = {}
        self._waiting: set[str] = set()

    def dependents(self, uid: str) -> Collection[GraphNode]:
        """Return the nodes with an owner of this uid."""
        return self._dependents.get(uid, {}).values()

    def without_owner(self, group: str, kind: str) -> Iterator[Key]:
        """Yield the objects with an owner of a kind that has no object of its uid."""
        for uid, nodes in self._dependents.items():
            if uid in self._places:
                continue
            for node in nodes.values():
                if any(one.uid == uid and one.kind == kind and group_of(one) == group for one in node.owners):
                    yield node.key

    def is_waiting(self, uid: str) -> bool:
        """Return True if the object waits for its dependents to be deleted first."""
        return uid in self._waiting

    def add_plain(self, entry: Entry) -> bool:
        """Add a new object without owners and dependents, as most are, and return True. Any other object must be
        ``put``. A new object is never in deletion."""
        uid = entry.uid
        if _OWNED in entry.json or uid in self._dependents or entry.key in self._nodes:
            return False
        self._places[uid] = entry.key
        return True

    def put(self, key: Key, uid: str, node: GraphNode | None) -> Effects:
        """Add or change an object; ``node``: its ``node_of``."""
        old = self._nodes.get(key)
        new_here = self._places.get(uid) is None
        if new_here:
            self._places[uid] = key
        if old is None and node is None:
            if not new_here or uid not in self._dependents:
                return NOTHING
            return Effects(foreign=self._elsewhere(key, uid))
        to_process: list[Key] = []
        if old is not None and old.uid != uid:
            to_process += self.remove(key, old.uid).to_process
            old = None
        before = old.owners if old is not None else ()
        after = node.owners if node is not None else ()
        added = [reference for reference in after if reference not in before]
        self._link(key, before, after, node)
        to_process += self._released(before, after)
        to_process += self._begun(key, uid, old, node)
        foreign = self._elsewhere(key, uid) if new_here else []
        if node is None:
            self._nodes.pop(key, None)
        else:
            self._nodes[key] = node
            foreign += self._in_other_namespaces(node, added)
        return Effects(to_process, node if added else None, foreign)

    def remove(self, key: Key, uid: str) -> Effects:
        """Remove a deleted object. Its dependents must be processed, and the owners that waited for it."""
        self._places.pop(uid, None)
        self._waiting.discard(uid)
        to_process = [*self._dependents.get(uid, ())]
        node = self._nodes.get(key)
        if node is not None and node.uid == uid:
            del self._nodes[key]
            self._link(key, node.owners, (), None)
            to_process += (self._places[owner.uid] for owner in node.owners if owner.uid in self._waiting)
        return Effects(to_process) if to_process else NOTHING

    def forget(self, resource: str) -> None:
        """Remove all objects of a resource that is no longer served."""
        for uid, key in [item for item in self._places.items() if item[1].resource == resource]:
            self.remove(key, uid)

    def _link(
        self, key: Key, before: Collection[OwnerReference], after: Collection[OwnerReference], node: GraphNode | None
    ) -> None:
        kept = {reference.uid for reference in after}
        for reference in before:
            held = self._dependents.get(reference.uid)
            if reference.uid not in kept and held is not None:
                held.pop(key, None)
                if not held:
                    del self._dependents[reference.uid]
        if node is not None:
            for uid in kept:
                self._dependents.setdefault(uid, {})[key] = node

    def _released(self, before: Collection[OwnerReference], after: Collection[OwnerReference]) -> list[Key]:
        """Return the owners that no longer wait for this dependent."""
        blocked = {reference.uid for reference in before if reference.blocks}
        blocked.difference_update(reference.uid for reference in after if reference.blocks)
        return [self._places[uid] for uid in blocked if uid in self._waiting]

    def _begun(self, key: Key, uid: str, old: GraphNode | None, node: GraphNode | None) -> list[Key]:
        """Return the objects to process if a deletion has just begun to wait for dependents."""
        if node is None or not node.waiting:
            self._waiting.discard(uid)
        to_process: list[Key] = []
        if node is not None and node.orphaning and not (old is not None and old.orphaning):
            to_process.append(key)
        if node is not None and node.waiting and uid not in self._waiting:
            self._waiting.add(uid)
            to_process += [key, *self._dependents.get(uid, ())]
        return to_process

    def _in_other_namespaces(
        self, node: GraphNode, added: Collection[OwnerReference]
    ) -> list[tuple[GraphNode, OwnerReference]]:
        """Return the first new reference to an owner that is known to be in another namespace."""
        for reference in added:
            place = self._places.get(reference.uid)
            if place is not None and place.namespace and place.namespace != node.key.namespace:
                return [(node, reference)]
        return []

    def _elsewhere(self, key: Key, uid: str) -> list[tuple[GraphNode, OwnerReference]]:
        """Return the dependents of a new object that are in other namespaces."""
        if not key.namespace:
            return []
        return [
            (node, next(reference for reference in node.owners if reference.uid == uid))
            for node in self.dependents(uid)
            if node.key.namespace != key.namespace
        ]


def foreign_owner(node: GraphNode, reference: OwnerReference) -> str:
    """Return the message of the Event about an object with an owner in another namespace."""
    namespace = node.key.namespace
    owner = f"{reference.api_version}/{reference.kind}, namespace: {namespace}, name: {reference.name}"
    return f'ownerRef [{owner}, uid: {reference.uid}] does not exist in namespace "{namespace}"'
