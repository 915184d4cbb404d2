"""Objects of extension API servers in the garbage collector's graph, and owners that are such objects.

kube-controller-manager watches them. Here each resource is listed every POLL seconds, as metadata alone, and compared
with the graph; so a change there is seen after that time at most. An owner is asked for whenever its dependent is
processed. The resources are those of discovery with the verbs delete, list and watch, as for own resources.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from kubechronicle.actors.loops.foreign_objects import ForeignObjects
from kubechronicle.actors.loops.garbage.decisions import OwnerState
from kubechronicle.actors.loops.garbage.graph import Effects, Graph, GraphNode, OwnerReference, node_of_metadata
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.api_services import ForeignResource
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.eventlog.records import Key

log = logging.getLogger(__name__)

POLL: Final = 30.0
"""Seconds between two lists of one resource."""
VERBS: Final = frozenset({"delete", "list", "watch"})


class ForeignDependents:
    """Keeps the objects of other servers in ``graph``. ``queue_effects``: takes the work that follows."""

    def __init__(
        self, foreign: ForeignObjects, graph: Graph, queue_effects: Callable[[Effects], Awaitable[None]]
    ) -> None:
        self.foreign = foreign
        self._graph = graph
        self._queue_effects = queue_effects
        self._known: dict[str, dict[Key, str]] = {}  # resource -> uids

    async def run(self) -> None:
        """Follow the resources until cancelled."""
        while True:
            collected = {_name(one): one for one in self.foreign.resources() if one.verbs >= VERBS}
            stale = set(self.foreign.undiscovered())
            for name in self._known.keys() - collected.keys():
                # A group that does not answer now keeps its objects: they have not been deleted.
                if not any(_group(name) == version.partition("/")[0] for version in stale):
                    del self._known[name]
                    self._graph.forget(name)
            async with trio.open_nursery() as nursery:
                for resource in collected.values():
                    nursery.start_soon(self._compare, resource)
            await trio.sleep(POLL)

    def resource(self, name: str) -> ForeignResource | None:
        """Return the resource of another server by its name in keys."""
        return next((one for one in self.foreign.resources() if _name(one) == name), None)

    async def read(self, resource: ForeignResource, key: Key) -> tuple[GraphNode, ReadOnlyObject] | None:
        """Return an object as it is now; None if it does not exist or needs no decision. StatusError."""
        try:
            obj = await self.foreign.get(resource, key.namespace, key.name)
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        metadata = _metadata(obj)
        node = node_of_metadata(key, str(metadata.get("uid") or ""), metadata)
        return None if node is None else (node, obj)

    async def owners(self, node: GraphNode, registry: Registry) -> dict[OwnerReference, OwnerState]:
        """Return the states of the owners that are objects of other servers. StatusError: one is unknown now."""
        found = {}
        for reference in node.owners:
            rt = registry.by_api_version(reference.api_version, reference.kind)
            if rt is None or not rt.stored:
                resource = self._of_kind(reference)
                if resource is not None:
                    found[reference] = await self._owner(resource, node.key, reference)
        return found

    async def _owner(self, resource: ForeignResource, key: Key, reference: OwnerReference) -> OwnerState:
        if resource.namespaced and not key.namespace:
            return OwnerState.INVALID
        place = Key(_name(resource), key.namespace if resource.namespaced else "", reference.name)
        try:
            metadata = _metadata(await self.foreign.get(resource, place.namespace, place.name))
        except StatusError as error:
            if error.code == 404:
                return OwnerState.GONE
            raise
        if metadata.get("uid") != reference.uid:
            return OwnerState.GONE
        node = node_of_metadata(place, reference.uid, metadata)
        return OwnerState.WAITING if node is not None and node.waiting else OwnerState.SOLID

    def _of_kind(self, reference: OwnerReference) -> ForeignResource | None:
        wanted = reference.api_version, reference.kind
        return next((one for one in self.foreign.resources() if (one.api_version, one.kind) == wanted), None)

    async def _compare(self, resource: ForeignResource) -> None:
        """Bring the graph to the state of a list."""
        name = _name(resource)
        try:
            objects = await self.foreign.list(resource, "")
        except StatusError as error:
            log.info("the garbage collector could not list %s: %s", name, error.message)
            return
        pauses = Pauses()
        before, now = self._known.get(name, {}), dict[Key, str]()
        for metadata in map(_metadata, objects):
            now[_key(name, metadata)] = str(metadata.get("uid") or "")
            await pauses.pause()
        self._known[name] = now
        for key, uid in before.items():
            if now.get(key) != uid:
                await self._queue_effects(self._graph.remove(key, uid))
            await pauses.pause()
        for metadata in map(_metadata, objects):
            key = _key(name, metadata)
            await self._queue_effects(self._graph.put(key, now[key], node_of_metadata(key, now[key], metadata)))
            await pauses.pause()


def _metadata(obj: ReadOnlyObject) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(resource: ForeignResource) -> str:
    return f"{resource.plural}.{resource.group}"


def _group(name: str) -> str:
    return name.partition(".")[2]


def _key(name: str, metadata: Mapping[str, Any]) -> Key:
    return Key(name, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
