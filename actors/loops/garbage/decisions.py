"""Decisions about an object by its owners and dependents, by kube-controller-manager's rules. Pure.

An object is deleted when it has owners and none of them exists. An object with an owner left stays, and loses its
references to owners that are gone or waiting. A waiting owner is in foreground deletion: its dependents go first.
A dependent of a waiting owner that has dependents itself is deleted in the foreground, too, so that leaves go first:

    owners                    dependents    decision
    gone                      any           delete; its finalizers decide about its dependents
    gone, solid               any           drop the reference to the owner that is gone
    waiting, solid            any           drop the reference to the owner that waits
    waiting                   none          delete
    waiting                   some          delete in the foreground
    waiting                   one waits     perhaps a cycle: unblock its owners, then as above
    of a kind not served      any           retry later
    namespaced, but the object is not       nothing

API docs: "Garbage Collection", "Owners and Dependents".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kubechronicle.actors.loops.garbage.graph import GraphNode, OwnerReference, node_of
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

Peek = Callable[[str, str, str], Entry | None]


class OwnerState(enum.Enum):
    """The state of an owner.

    ``SOLID``: exists and may stay.
    ``GONE``: does not exist.
    ``WAITING``: in deletion, waits for its dependents.
    ``UNKNOWN_KIND``: of a kind that is not served.
    ``INVALID``: in a namespace, but the dependent is in none.
    """

    SOLID = "solid"
    GONE = "gone"
    WAITING = "waiting"
    UNKNOWN_KIND = "unknown kind"
    INVALID = "invalid"


class Act(enum.Enum):
    """The next step for an object; see ``GarbageDecision``."""

    NOTHING = "nothing"
    LATER = "later"
    ORPHAN_DEPENDENTS = "orphan dependents"
    END_FOREGROUND = "end foreground"
    AWAIT_DEPENDENTS = "await dependents"
    DROP_REFERENCES = "drop references"
    UNBLOCK_OWNERS = "unblock owners"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class GarbageDecision:
    """The next step for an object, and its arguments.

    ``references``: the references to drop.
    ``policy``: the propagation policy of DELETE.
    """

    act: Act
    references: tuple[OwnerReference, ...] = ()
    policy: str = ""


NOTHING = GarbageDecision(Act.NOTHING)
AWAIT_DEPENDENTS = GarbageDecision(Act.AWAIT_DEPENDENTS)
"""The graph has queued the dependents when the wait began, and each that was added later."""


def find_owner(key: Key, reference: OwnerReference, registry: Registry, peek: Peek) -> Entry | OwnerState:
    """Return the owner of the object at ``key``, or the reason why there is none.

    An owner of a namespaced kind is looked up in the object's own namespace. An owner with another uid is GONE.
    """
    rt = registry.by_api_version(reference.api_version, reference.kind)
    if rt is None or not rt.stored:
        return OwnerState.UNKNOWN_KIND
    if rt.namespaced and not key.namespace:
        return OwnerState.INVALID
    owner = peek(rt.resource, key.namespace if rt.namespaced else "", reference.name)
    return owner if owner is not None and owner.uid == reference.uid else OwnerState.GONE


def owner_state(key: Key, reference: OwnerReference, registry: Registry, peek: Peek) -> OwnerState:
    """Return the state of an owner of the object at ``key``."""
    owner = find_owner(key, reference, registry, peek)
    if isinstance(owner, OwnerState):
        return owner
    node = node_of(owner)
    return OwnerState.WAITING if node is not None and node.waiting else OwnerState.SOLID


def decide(node: GraphNode, owner_states: Sequence[OwnerState], dependents: Collection[GraphNode]) -> GarbageDecision:
    """Decide about a node. ``owner_states``: of its owners, in order. ``dependents``: all nodes that refer to it."""
    if node.orphaning:
        return GarbageDecision(Act.ORPHAN_DEPENDENTS)
    if node.waiting:
        return _decide_waiting(node, dependents)
    if node.deleting or not node.owners:
        return NOTHING
    if OwnerState.INVALID in owner_states:
        return NOTHING
    if OwnerState.UNKNOWN_KIND in owner_states:
        return GarbageDecision(Act.LATER)
    if OwnerState.SOLID in owner_states:
        owners = zip(node.owners, owner_states, strict=True)
        lost = tuple(reference for reference, state in owners if state is not OwnerState.SOLID)
        return GarbageDecision(Act.DROP_REFERENCES, lost) if lost else NOTHING
    if OwnerState.WAITING in owner_states and dependents:
        cycle = any(dependent.waiting for dependent in dependents)
        if cycle and any(reference.blocks for reference in node.owners):
            return GarbageDecision(Act.UNBLOCK_OWNERS)
        return GarbageDecision(Act.DELETE, policy="Foreground")
    return GarbageDecision(
        Act.DELETE, policy="Orphan" if node.orphan else "Foreground" if node.foreground else "Background"
    )


def _decide_waiting(node: GraphNode, dependents: Collection[GraphNode]) -> GarbageDecision:
    references = (reference for dependent in dependents for reference in dependent.owners)
    if any(reference.blocks and reference.uid == node.uid for reference in references):
        return AWAIT_DEPENDENTS
    return GarbageDecision(Act.END_FOREGROUND)
