"""GraphBuilder: follows every collected resource into one graph, and queues the objects to process (the term is
kube-controller-manager's).

    changes of pods  ──┐
    changes of …     ──┼── graph ── queue of the collector's workers
    changes of …     ──┤
    lists of others  ──┘

One Reflector per served resource; `ForeignDependents` follows those of other servers. A worker waits with
``catch_up`` until the graph has all changes of own resources up to a revision.

Objects of extension API servers in the garbage collector's graph, and owners that are such objects.

kube-controller-manager watches them. Here each resource is listed every POLL seconds, as metadata alone, and compared
with the graph; so a change there is seen after that time at most. An owner is asked for whenever its dependent is
processed. The resources are those of discovery with the verbs delete, list and watch, as for own resources.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, Final

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.edits import NO_CHANGE
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.foreign_objects import ForeignObjects
from kubechronicle.actors.loops.garbage.decisions import OwnerState, find_owner
from kubechronicle.actors.loops.garbage.graph import (
    NOTHING,
    Effects,
    Graph,
    GraphNode,
    OwnerReference,
    foreign_owner,
    node_of,
    node_of_metadata,
)
from kubechronicle.actors.loops.garbage.writers import COMPONENT
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.store import Store
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.api_services import ForeignResource
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.records import Key, Operation

POLL: Final = 30.0
"""Seconds between two lists of one resource."""


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


log = logging.getLogger(__name__)

# The collector's name in Events.
SOURCE = "garbage-collector-controller"
# Storage resources that are never collected (kube-controller-manager: DefaultIgnoredResources).
IGNORED = frozenset({"events"})
# Verbs that a collected resource must have (kube-controller-manager: GetDeletableResources).
VERBS: Final = frozenset({"delete", "list", "watch"})
# Seconds between two checks for resources that the registry has gained or lost.
REGISTRY_INTERVAL = 5.0
# Seconds in which further changes gather before they are read, unless a worker waits for them: large batches are cheap.
GATHERING = 0.02
# Seconds before changes that could not be read are read again.
RETRY_DELAY = 0.1
# Reports of owners in other namespaces that wait to be written. Further ones are dropped, as client-go drops Events.
MAX_REPORTS = 100
# Owners whose end is remembered, as the cause of what happens to their dependents; of others, the log is asked.
MOST_ENDS = 10_000


class Follower:
    """The progress of one resource: its objects are in the graph once ``loaded``, its changes up to the reflector's
    revision. A batch of changes is put into the graph before any other task runs.

    ``is_late``: the resource was not served when the collector started.
    """

    def __init__(self, *, is_late: bool) -> None:
        self.is_late = is_late
        self.scope = trio.CancelScope()
        self.loaded = False
        self.reflector: Reflector | None = None

    def has_seen(self, revision: int) -> bool:
        return self.loaded and self.reflector is not None and self.reflector.revision >= revision


class GraphBuilder:
    """Shared with the collector's workers:

    ``graph``: owners and dependents of all collected resources.
    ``queue``: the objects to process.
    ``unknown_kinds``: objects with an owner of a kind that is not served; queued again when the registry changes.
    ``others``: the objects of other servers.
    """

    def __init__(self, store: Store, queue: WorkQueue[Key], foreign: ForeignObjects) -> None:
        self.graph = Graph()
        self.others = ForeignDependents(foreign, self.graph, self._queue_effects)
        self.unknown_kinds: set[Key] = set()
        self._store = store
        self._queue = queue
        self._followers: dict[str, Follower] = {}
        self._progress = trio.lowlevel.ParkingLot()  # workers that wait for followers
        self._worker_waits = trio.Event()
        self._reports, self._unreported = trio.open_memory_channel[tuple[Entry, str]](MAX_REPORTS)
        self._history_lost = trio.Event()
        self._ends: dict[str, int] = {}  # by uid: the revision at which an owner was deleted, or began to wait

    async def run(self) -> None:
        """Follow all resources. Return when changes were compacted before they were read: the graph misses them."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            nursery.start_soon(self._follow_registry, nursery)
            nursery.start_soon(self.others.run)
            await self._history_lost.wait()
            nursery.cancel_scope.cancel()

    async def catch_up(self, reads: Reads) -> None:
        """Wait until all changes that a log holds by now are in the graph. LogUnavailable."""
        revision, log_of = await reads.wait_consistent(), self._store.reads.of
        while not all(
            follower.has_seen(revision) for name, follower in self._followers.items() if log_of(name) is reads
        ):
            self._worker_waits.set()
            self._worker_waits = trio.Event()
            await self._progress.park()

    # -- resources ----------------------------------------------------------------------------------------------------

    async def _follow_registry(self, nursery: trio.Nursery) -> None:
        """Keep one follower for each served resource. Custom resources come and go."""
        known: Registry | None = None
        while True:
            registry = self._store.registry
            if registry is not known:
                is_late, known = known is not None, registry
                served = {rt.resource: rt for rt in registry.stored() if is_collected(rt)}
                for resource in self._followers.keys() - served.keys():
                    self._followers.pop(resource).scope.cancel()
                    self.graph.forget(resource)
                for resource in served.keys() - self._followers.keys():
                    follower = self._followers[resource] = Follower(is_late=is_late)
                    nursery.start_soon(self._follow, served[resource], follower)
                for key in self.unknown_kinds:
                    self._queue.add(key)
                self.unknown_kinds.clear()
                self._progress.unpark_all()
            await trio.sleep(REGISTRY_INTERVAL)

    async def _follow(self, rt: ResourceType, follower: Follower) -> None:
        with follower.scope:
            follower.reflector = Reflector(
                self._store.reads,
                rt,
                component=COMPONENT,
                on_list=partial(self._load, rt, follower),
                on_changes=self._take_changes,
                revision=0,
                delays=repeat(RETRY_DELAY),
            )
            await follower.reflector.run()

    async def _load(self, rt: ResourceType, follower: Follower) -> None:
        """Put all objects into the graph. A second list means that changes were lost: then the graph is rebuilt."""
        if follower.loaded:
            follower.loaded = False
            log.warning("changes of %s were compacted before they were read, rebuilding the graph", rt.plural)
            self._history_lost.set()
            await trio.sleep_forever()
        pauses = Pauses()
        for entry in self._store.reads.entries(rt.resource, ""):
            await self._queue_effects(self.graph.put(entry.key, entry.uid, node_of(entry)))
            await pauses.pause()
        follower.loaded = True
        if follower.is_late:  # its objects may have ended before anybody followed them
            for key in list(self.graph.without_owner(rt.group, rt.kind)):
                self._queue.add(key)
                await pauses.pause()
        self._progress.unpark_all()

    # -- changes ------------------------------------------------------------------------------------------------------

    async def _take_changes(self, events: Sequence[Event]) -> None:
        found: list[tuple[Effects, int]] = []
        for event in events:
            entry = event.entry
            if event.previous is None and self.graph.add_plain(entry):
                continue
            if event.operation is Operation.DELETE:
                effects = self.graph.remove(entry.key, entry.uid)
            else:
                effects = self.graph.put(entry.key, entry.uid, node_of(entry))
            if effects is not NOTHING:
                found.append((effects, event.revision))
                if event.operation is Operation.DELETE or self.graph.is_waiting(entry.uid):
                    self._note_end(entry.uid, event.revision)
        # The graph has the whole batch now, so other tasks may run.
        for effects, cause in found:
            await self._queue_effects(effects, cause)
        self._progress.unpark_all()
        with trio.move_on_after(GATHERING):
            await self._worker_waits.wait()
        self._progress.unpark_all()

    def _note_end(self, uid: str, revision: int) -> None:
        self._ends[uid] = revision
        if len(self._ends) > MOST_ENDS:
            del self._ends[next(iter(self._ends))]

    def end_of(self, node: GraphNode) -> int:
        """Return the revision at which an owner of the object ended lately; NO_CHANGE if none is remembered."""
        return max((self._ends.get(owner.uid, NO_CHANGE) for owner in node.owners), default=NO_CHANGE)

    async def _queue_effects(self, effects: Effects, cause: int = NO_CHANGE) -> None:
        """Queue objects. ``cause``: the revision of the change of their owner or dependent (loops/edits.py)."""
        pauses = Pauses()
        for key in effects.to_process:
            self._queue.add(key, cause=cause)
            await pauses.pause()
        if effects.check is not None and not self._has_all_owners(effects.check):
            self._queue.add(effects.check.key)
        for node, reference in effects.foreign:
            entry = self._store.reads.peek(*node.key)
            if entry is not None:
                with suppress(trio.WouldBlock):
                    self._reports.send_nowait((entry, foreign_owner(node, reference)))

    def _has_all_owners(self, node: GraphNode) -> bool:
        """Return True if all owners exist and may stay. If this view lags, the deletion of an owner is still to be
        followed, and then queues its dependents."""
        registry, peek = self._store.registry, self._store.reads.peek
        return not any(
            self.graph.is_waiting(reference.uid)
            or isinstance(find_owner(node.key, reference, registry, peek), OwnerState)
            for reference in node.owners
        )

    async def _report(self) -> None:
        """Record Events about owners in other namespaces. One that fails is dropped."""
        recorder = EventRecorder(self._store, SOURCE)
        async for entry, message in self._unreported:
            try:
                await recorder.warn(entry, "OwnerRefInvalidNamespace", message)
            except (LogError, ActorError) as error:
                log.info("an event about %s/%s could not be recorded: %s", entry.key.namespace, entry.key.name, error)


def is_collected(rt: ResourceType) -> bool:
    """Return True if objects of this type can be owners and dependents."""
    return rt.resource not in IGNORED and set(rt.verbs) >= VERBS
