"""The Event by which the collector tells that an object names an owner of another namespace. Pure."""

from __future__ import annotations

from typing import Any

from kubechronicle.actors.loops.garbage.graph import Node, Reference
from kubechronicle.api.registry import ResourceType

# What kube-controller-manager's garbage collector calls itself in Events.
SOURCE = "garbage-collector-controller"
REASON = "OwnerRefInvalidNamespace"


def foreign_owner_event(
    rt: ResourceType, node: Node, reference: Reference, *, now: str, nanoseconds: int
) -> dict[str, Any]:
    """A v1 Event about the object. ``rt``: the object's type; ``now``: RFC 3339; ``nanoseconds``: since 1970.

    Events about what is in no namespace are kept in ``default``.
    """
    namespace, name = node.key.namespace, node.key.name
    owner = f"{reference.api_version}/{reference.kind}, namespace: {namespace}, name: {reference.name}"
    involved = {"kind": rt.kind, "namespace": namespace, "name": name, "uid": node.uid, "apiVersion": rt.api_version}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{nanoseconds:x}", "namespace": namespace or "default"},
        "involvedObject": {member: value for member, value in involved.items() if value},
        "reason": REASON,
        "message": f'ownerRef [{owner}, uid: {reference.uid}] does not exist in namespace "{namespace}"',
        "source": {"component": SOURCE},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
        "reportingComponent": SOURCE,
        "reportingInstance": "",
    }
