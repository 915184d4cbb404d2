"""The garbage collector's writes of one object: of this server through the store, of another one by a request.

Each keeps to the object of the decision: a deletion has its uid and revision as preconditions, a change its uid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kubechronicle.actors.loops.foreign_objects import ForeignObjects
from kubechronicle.actors.loops.garbage.graph import GraphNode
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.api_services import ForeignResource
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject

COMPONENT: Final = "garbage-collector"
# The field manager under which kube-controller-manager's garbage collector changes objects.
MANAGER: Final = "kube-controller-manager"
EDITED: Final = ("ownerReferences", "finalizers")

Change = Callable[[Object], Object]
"""Returns the object with other owner references or finalizers (collector.py)."""


class GarbageWriter(Protocol):
    """Both calls raise StatusError 404 if the object is gone, 409 if it has changed."""

    async def delete(self, policy: str) -> None:
        """Delete the object if it is unchanged since the decision. ``policy``: of propagation."""
        ...

    async def edit(self, change: Change) -> None:
        """Change the object unless it was replaced by another of its name."""
        ...


class OwnWriter:
    """Writes an object of this server. ``revision``: that of the decision, for ``delete``. ``cause``: as in
    loops/edits.py."""

    def __init__(self, store: Store, rt: ResourceType, node: GraphNode, *, cause: int, revision: int = 0) -> None:
        self._store = store
        self._node = node
        self._revision = revision
        self._cause = cause
        self._target = Target(rt=rt, namespace=node.key.namespace, name=node.key.name, manager=MANAGER)

    async def delete(self, policy: str) -> None:
        options = DeleteOptions(
            propagation_policy=policy,
            precondition_uid=self._node.uid,
            precondition_resource_version=str(self._revision),
        )
        await self._store.writes.delete(system_caller(COMPONENT, "delete", cause=self._cause), self._target, options)

    async def edit(self, change: Change) -> None:
        def changed(obj: Object) -> Object:
            return change(obj) if obj["metadata"].get("uid") == self._node.uid else obj

        await self._store.writes.edit(system_caller(COMPONENT, "patch", cause=self._cause), self._target, changed)


class ForeignWriter:
    """Writes an object of another server. ``obj``: as it was read."""

    def __init__(
        self, foreign: ForeignObjects, resource: ForeignResource, node: GraphNode, obj: ReadOnlyObject
    ) -> None:
        self._foreign = foreign
        self._resource = resource
        self._node = node
        self._metadata: Object = dict(obj["metadata"])

    async def delete(self, policy: str) -> None:
        preconditions = {"uid": self._node.uid, **self._revision()}
        options = {"propagationPolicy": policy, "preconditions": preconditions}
        await self._foreign.delete(self._resource, self._node.key.namespace, self._node.key.name, options)

    async def edit(self, change: Change) -> None:
        after = change({"metadata": self._metadata})["metadata"]
        changed = {name: after.get(name) for name in EDITED if after.get(name) != self._metadata.get(name)}
        if changed:
            patch = {"metadata": {"uid": self._node.uid, **self._revision(), **changed}}
            await self._foreign.patch(self._resource, self._node.key.namespace, self._node.key.name, patch)

    def _revision(self) -> Object:
        revision = self._metadata.get("resourceVersion")
        return {"resourceVersion": revision} if revision else {}
