"""Who owns whom, and what is to be looked at when that changes. Pure: no store, no clock.

The graph knows where every object is by its uid, but has a node only for those that matter to it: objects with owner
references, and objects whose deletion waits for what becomes of their dependents. The rest, most of a cluster, costs
one dictionary item each and no parsing.

    ReplicaSet r (uid 1) <- Pod p (uid 2)     put(p): dependents of 1 are {p}
    r goes                                    remove(r): look at p
    r is being deleted in the foreground      put(r): look at r and p; then remove(p): look at r

An owner is referred to by uid, whether it is there or not. Whether it is there is not said here: whoever looks at an
object asks the store, consistently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kubechronicle.api.pipeline.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

# Inside a JSON string every quote is escaped, so that these are member names wherever they are found. They may be those
# of a template; then the object is parsed in vain.
_OWNED = b'"ownerReferences":['
_DELETED = b'"deletionTimestamp":'


@dataclass(frozen=True, slots=True)
class Reference:
    """One of an object's ownerReferences. ``blocks``: the owner's deletion in the foreground waits for the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An object as the collector sees it; ``foreground`` and ``orphan`` are the finalizers of these names."""

    key: Key
    uid: str
    owners: tuple[Reference, ...] = ()
    deleting: bool = False
    foreground: bool = False
    orphan: bool = False

    @property
    def waiting(self) -> bool:
        """Whether it is being deleted and waits for its dependents to go first."""
        return self.deleting and self.foreground

    @property
    def orphaning(self) -> bool:
        """Whether it is being deleted and waits for its dependents to be let go."""
        return self.deleting and self.orphan


def node_of(entry: Entry) -> Node | None:
    """The node of an object; None if it needs none."""
    json = entry.json
    if _OWNED not in json and _DELETED not in json:
        return None
    metadata = entry.object()["metadata"]
    owners = tuple(map(reference_of, metadata.get("ownerReferences") or ()))
    finalizers = metadata.get("finalizers") or ()
    node = Node(
        key=entry.key,
        uid=entry.uid,
        owners=owners,
        deleting="deletionTimestamp" in metadata,
        foreground=FOREGROUND_FINALIZER in finalizers,
        orphan=ORPHAN_FINALIZER in finalizers,
    )
    return node if owners or node.waiting or node.orphaning else None


def reference_of(owner: Mapping[str, Any]) -> Reference:
    """Of a member of ownerReferences."""
    return Reference(
        owner.get("apiVersion", ""),
        owner.get("kind", ""),
        owner.get("name", ""),
        owner.get("uid", ""),
        bool(owner.get("blockOwnerDeletion")),
    )


@dataclass(frozen=True, slots=True)
class Effects:
    """What follows from a change of the graph.

    ``look``: objects to look at. ``check``: a node with new owners, to be looked at unless all of them are there.
    ``foreign``: dependents and those of their references whose owner is in another namespace.
    """

    look: Collection[Key] = ()
    check: Node | None = None
    foreign: Collection[tuple[Node, Reference]] = ()


NOTHING = Effects()


class Graph:
    """See the head of this file. Invariant: ``dependents(u)`` are the nodes with a reference to u."""

    __slots__ = ("_dependents", "_nodes", "_places", "_waiting")

    def __init__(self) -> None:
        self._places: dict[str, Key] = {}
        self._nodes: dict[Key, Node] = {}
        self._dependents: dict[str, dict[Key, Node]] = {}
        self._waiting: set[str] = set()

    def dependents(self, uid: str) -> Collection[Node]:
        """The nodes that name this uid as an owner."""
        return self._dependents.get(uid, {}).values()

    def is_waiting(self, uid: str) -> bool:
        """Whether the object waits for its dependents to go first."""
        return uid in self._waiting

    def is_plain(self, entry: Entry) -> bool:
        """Take in an object that is new and has no owners, as most are, if this is one and nothing follows from it;
        otherwise it is to be ``put``. (An object that is new is not being deleted.)"""
        uid = entry.uid
        if _OWNED in entry.json or uid in self._dependents or entry.key in self._nodes:
            return False
        self._places[uid] = entry.key
        return True

    def put(self, key: Key, uid: str, node: Node | None) -> Effects:
        """The object is there, or has changed; ``node``: ``node_of`` it."""
        old = self._nodes.get(key)
        new_here = self._places.get(uid) is None
        if new_here:
            self._places[uid] = key
        if old is None and node is None:
            if not new_here or uid not in self._dependents:
                return NOTHING
            return Effects(foreign=self._elsewhere(key, uid))
        look: set[Key] = set()
        if old is not None and old.uid != uid:
            look.update(self.remove(key, old.uid).look)
            old = None
        before = old.owners if old is not None else ()
        after = node.owners if node is not None else ()
        added = [reference for reference in after if reference not in before]
        self._link(key, before, after, node)
        look.update(self._released(before, after))
        look.update(self._begun(key, uid, old, node))
        foreign = self._elsewhere(key, uid) if new_here else []
        if node is None:
            self._nodes.pop(key, None)
        else:
            self._nodes[key] = node
            foreign += self._in_other_namespaces(node, added)
        return Effects(look, node if added else None, foreign)

    def remove(self, key: Key, uid: str) -> Effects:
        """The object is gone: its dependents are to be looked at, and owners that waited for it to go."""
        self._places.pop(uid, None)
        self._waiting.discard(uid)
        look = set(self._dependents.get(uid, ()))
        node = self._nodes.get(key)
        if node is not None and node.uid == uid:
            del self._nodes[key]
            self._link(key, node.owners, (), None)
            look.update(self._places[owner.uid] for owner in node.owners if owner.uid in self._waiting)
        return Effects(look) if look else NOTHING

    def forget(self, resource: str) -> None:
        """The resource is no longer served: nothing is known of its objects any more."""
        for uid, key in [item for item in self._places.items() if item[1].resource == resource]:
            self.remove(key, uid)

    def _link(self, key: Key, before: Collection[Reference], after: Collection[Reference], node: Node | None) -> None:
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

    def _released(self, before: Collection[Reference], after: Collection[Reference]) -> list[Key]:
        """Owners that waited for this dependent and no longer need to."""
        blocked = {reference.uid for reference in before if reference.blocks}
        blocked.difference_update(reference.uid for reference in after if reference.blocks)
        return [self._places[uid] for uid in blocked if uid in self._waiting]

    def _begun(self, key: Key, uid: str, old: Node | None, node: Node | None) -> list[Key]:
        """What a deletion that has just begun to wait for its dependents asks for."""
        if node is None or not node.waiting:
            self._waiting.discard(uid)
        look: list[Key] = []
        if node is not None and node.orphaning and not (old is not None and old.orphaning):
            look.append(key)
        if node is not None and node.waiting and uid not in self._waiting:
            self._waiting.add(uid)
            look += [key, *self._dependents.get(uid, ())]
        return look

    def _in_other_namespaces(self, node: Node, added: Collection[Reference]) -> list[tuple[Node, Reference]]:
        """The first of the new references whose owner is known, and is in another namespace."""
        for reference in added:
            place = self._places.get(reference.uid)
            if place is not None and place.namespace and place.namespace != node.key.namespace:
                return [(node, reference)]
        return []

    def _elsewhere(self, key: Key, uid: str) -> list[tuple[Node, Reference]]:
        """Dependents of an object just seen that should be in its namespace and are not."""
        if not key.namespace:
            return []
        return [
            (node, next(reference for reference in node.owners if reference.uid == uid))
            for node in self.dependents(uid)
            if node.key.namespace != key.namespace
        ]


def foreign_owner(node: Node, reference: Reference) -> str:
    """What an Event tells of an object that names an owner of another namespace."""
    namespace = node.key.namespace
    owner = f"{reference.api_version}/{reference.kind}, namespace: {namespace}, name: {reference.name}"
    return f'ownerRef [{owner}, uid: {reference.uid}] does not exist in namespace "{namespace}"'
