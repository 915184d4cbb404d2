"""Trees of objects over time: an object, its owners and its dependents in a period, however short they lived.

    Deployment web  ├────●──────●────┤          two ReplicaSets, one for each image
      ReplicaSet a  ├──────────●┤
        Pod a-1     ├────────┤
      ReplicaSet b             ├●────┤

Pure. An object is known by its uid, so a name that was used again is another object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

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
