"""What becomes of an object, by its owners and dependents: kube-controller-manager's garbage collector's rules. Pure.

Owners first: an object goes when it has owners and none of them is there. One that has an owner left stays, and loses
its references to those that are gone or wait to go. Where an owner waits for its dependents (deletion in the
foreground), what has dependents itself is deleted in the foreground, too, so that the last leaves go first:

    owners                    dependents    what happens
    gone                      any           deleted; the finalizers it has say what becomes of its dependents
    gone, solid               any           the reference to the one that is gone goes
    waiting, solid            any           the reference to the one that waits goes
    waiting                   none          deleted
    waiting                   some          deleted in the foreground
    waiting                   one waits     perhaps a cycle: it no longer blocks its owners, then as above
    of a kind not served      any           nothing, looked at again later
    namespaced, of an object that is not    nothing

API docs: "Garbage Collection", "Owners and Dependents".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kubechronicle.actors.loops.garbage.graph import Node, Reference, node_of
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

Peek = Callable[[str, str, str], Entry | None]


class Standing(enum.Enum):
    """What an owner reference refers to. SOLID: it is there and may stay; WAITING: it is being deleted and waits for
    its dependents; INVALID: an object in a namespace can't own one that is in none."""

    SOLID = "solid"
    GONE = "gone"
    WAITING = "waiting"
    UNKNOWN_KIND = "unknown kind"
    INVALID = "invalid"


class Act(enum.Enum):
    """What to do with an object; see ``Decision``."""

    NOTHING = "nothing"
    LATER = "later"
    ORPHAN_DEPENDENTS = "orphan dependents"
    END_FOREGROUND = "end foreground"
    AWAIT_DEPENDENTS = "await dependents"
    DROP_REFERENCES = "drop references"
    UNBLOCK_OWNERS = "unblock owners"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Decision:
    """``references``: those to be dropped. ``policy``: the propagation policy of DELETE. ``look``: dependents to be
    looked at meanwhile (AWAIT_DEPENDENTS)."""

    act: Act
    references: tuple[Reference, ...] = ()
    policy: str = ""
    look: tuple[Key, ...] = ()


NOTHING = Decision(Act.NOTHING)


def find_owner(key: Key, reference: Reference, registry: Registry, peek: Peek) -> Entry | Standing:
    """The owner to which the object at ``key`` refers, or why there is none. It is looked for by kind and name, in the
    object's own namespace if its kind has namespaces; one with another uid is another."""
    rt = registry.by_api_version(reference.api_version, reference.kind)
    if rt is None or not rt.stored:
        return Standing.UNKNOWN_KIND
    if rt.namespaced and not key.namespace:
        return Standing.INVALID
    owner = peek(rt.resource, key.namespace if rt.namespaced else "", reference.name)
    return owner if owner is not None and owner.uid == reference.uid else Standing.GONE


def standing_of(key: Key, reference: Reference, registry: Registry, peek: Peek) -> Standing:
    """What the object at ``key`` refers to."""
    owner = find_owner(key, reference, registry, peek)
    if isinstance(owner, Standing):
        return owner
    node = node_of(owner)
    return Standing.WAITING if node is not None and node.waiting else Standing.SOLID


def decide(node: Node, standings: Sequence[Standing], dependents: Collection[Node]) -> Decision:
    """``standings``: of the node's owners, in order; ``dependents``: all nodes that refer to it."""
    if node.orphaning:
        return Decision(Act.ORPHAN_DEPENDENTS)
    if node.waiting:
        return _decide_waiting(node, dependents)
    if node.deleting or not node.owners:
        return NOTHING
    if Standing.INVALID in standings:
        return NOTHING
    if Standing.UNKNOWN_KIND in standings:
        return Decision(Act.LATER)
    if Standing.SOLID in standings:
        owners = zip(node.owners, standings, strict=True)
        lost = tuple(reference for reference, standing in owners if standing is not Standing.SOLID)
        return Decision(Act.DROP_REFERENCES, lost) if lost else NOTHING
    if Standing.WAITING in standings and dependents:
        cycle = any(dependent.waiting for dependent in dependents)
        if cycle and any(reference.blocks for reference in node.owners):
            return Decision(Act.UNBLOCK_OWNERS)
        return Decision(Act.DELETE, policy="Foreground")
    return Decision(Act.DELETE, policy="Orphan" if node.orphan else "Foreground" if node.foreground else "Background")


def _decide_waiting(node: Node, dependents: Collection[Node]) -> Decision:
    blocking = [
        dependent
        for dependent in dependents
        if any(reference.uid == node.uid and reference.blocks for reference in dependent.owners)
    ]
    if not blocking:
        return Decision(Act.END_FOREGROUND)
    return Decision(Act.AWAIT_DEPENDENTS, look=tuple(one.key for one in blocking if not one.waiting))
