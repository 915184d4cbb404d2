"""Objects whose owners are gone are deleted, and deletions that wait for dependents are brought to their end.

Does what kube-controller-manager's garbage collector does (garbage/decisions.py says what that is), so that a server
with no controllers beside it cascades deletions; beside a real one it does no harm, since both delete the same, on
conditions that fail when the other was faster.

One task per resource follows its changes into one graph of who owns whom (garbage/graph.py), which says what is to be
looked at; workers look at it:

    changes of pods  ──┐           ┌── worker: read consistently, wait for the graph to be as new, decide, write
    changes of …     ──┼── graph ──┤
    changes of …     ──┘   queue   └── worker

Nothing is kept elsewhere: what a restart interrupts is seen anew in the objects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.garbage.decisions import Act, Decision, Standing, decide, find_owner, standing_of
from kubechronicle.actors.loops.garbage.graph import (
    NOTHING,
    Effects,
    Graph,
    Node,
    Reference,
    foreign_owner,
    node_of,
    reference_of,
)
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.watching.cursors import Cursor

log = logging.getLogger(__name__)

COMPONENT = "garbage-collector"
# The field manager under which kube-controller-manager's garbage collector changes objects.
MANAGER = "kube-controller-manager"
# What it calls itself in Events.
SOURCE = "garbage-collector-controller"
# Storage resources that are never collected (kube-controller-manager: DefaultIgnoredResources).
IGNORED = frozenset({"events"})
# What a resource must allow (kube-controller-manager: GetDeletableResources).
VERBS = frozenset({"delete", "list", "watch"})
# kube-controller-manager's --concurrent-gc-syncs.
WORKERS = 20
# Dependents that are let go at once.
ORPHANED_AT_ONCE = 64
# How often one look is repeated because the object changes under it, before it is put off.
MAX_ATTEMPTS = 8
# Seconds before what failed is tried again, doubling.
FIRST_RETRY = 0.1
LONGEST_RETRY = 60.0
# How often the registry is looked at for resources that have come or gone, in seconds.
REGISTRY_INTERVAL = 5.0
# Seconds in which further changes gather before they are taken in, unless a worker waits for them: many at once cost
# little each.
GATHERING = 0.02
# Objects taken into the graph between two chances for others to run.
LOADED_AT_ONCE = 200
# Reports of owners in other namespaces that wait to be written; further ones are dropped, as client-go drops Events.
MAX_REPORTS = 100

Change = Callable[[Object], Object]


class GarbageCollector:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Collect until cancelled; all over again if changes were missed because the history is gone."""
        task_status.started()
        while True:
            await Collection(self._store).run()


@dataclass(slots=True, eq=False)
class Follower:
    """How far one resource's changes are in the graph."""

    scope: trio.CancelScope
    cursor: Cursor | None = None

    def has_seen(self, revision: int) -> bool:
        # What a cursor hands out is put into the graph before anybody else runs.
        return self.cursor is not None and self.cursor.revision >= revision


class Collection:
    """One graph and those who work on it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._graph = Graph()
        self._queue: WorkQueue[Key] = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY)
        self._followers: dict[str, Follower] = {}
        self._progress = trio.lowlevel.ParkingLot()  # where workers wait for followers
        self._hurry = trio.Event()  # a worker waits
        self._unknown: set[Key] = set()  # they have an owner of a kind that is not served
        self._reports, self._to_report = trio.open_memory_channel[tuple[Entry, str]](MAX_REPORTS)
        self._over = trio.CancelScope()

    async def run(self) -> None:
        """Returns when it has missed changes."""
        with self._over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._queue.run)
                nursery.start_soon(self._report)
                for _ in range(WORKERS):
                    nursery.start_soon(self._work)
                await self._follow_registry(nursery)

    # -- changes into the graph ---------------------------------------------------------------------------------------

    async def _follow_registry(self, nursery: trio.Nursery) -> None:
        """One follower for each resource that is served; custom ones come and go."""
        known: Registry | None = None
        while True:
            registry = self._store.registry
            if registry is not known:
                known = registry
                served = {rt.resource: rt for rt in registry.stored() if is_collected(rt)}
                for resource in self._followers.keys() - served.keys():
                    self._followers.pop(resource).scope.cancel()
                    self._graph.forget(resource)
                for resource in served.keys() - self._followers.keys():
                    follower = self._followers[resource] = Follower(trio.CancelScope())
                    nursery.start_soon(self._follow, served[resource], follower)
                for key in self._unknown:
                    self._queue.add(key)
                self._unknown.clear()
                self._progress.unpark_all()
            await trio.sleep(REGISTRY_INTERVAL)

    async def _follow(self, rt: ResourceType, follower: Follower) -> None:
        with follower.scope:
            cursor = await self._load(rt)
            follower.cursor = cursor
            while True:
                self._progress.unpark_all()
                try:
                    events = await cursor.next_batch()
                except Compacted:
                    log.warning("changes of %s are gone before they were seen, looking at everything anew", rt.plural)
                    self._over.cancel()
                except LogError as error:
                    log.warning("changes of %s could not be read, trying again: %s", rt.plural, error)
                    await trio.sleep(FIRST_RETRY)
                else:
                    self._absorb(events)
                    self._progress.unpark_all()
                    with trio.move_on_after(GATHERING):
                        await self._hurry.wait()

    async def _load(self, rt: ResourceType) -> Cursor:
        """Take in what is there; the cursor goes on from it."""
        watching = await self._store.reads.watch(rt, Selection(), revision=0)
        for start in range(0, len(watching.initial), LOADED_AT_ONCE):
            for entry in watching.initial[start : start + LOADED_AT_ONCE]:
                self._follow_up(self._graph.put(entry.key, entry.uid, node_of(entry)))
            await trio.lowlevel.checkpoint()
        return watching.cursor

    def _absorb(self, events: Sequence[Event]) -> None:
        graph = self._graph
        for event in events:
            entry = event.entry
            if event.previous is None and graph.is_plain(entry):
                continue
            if event.operation is Operation.DELETE:
                effects = graph.remove(entry.key, entry.uid)
            else:
                effects = graph.put(entry.key, entry.uid, node_of(entry))
            if effects is not NOTHING:
                self._follow_up(effects)

    def _follow_up(self, effects: Effects) -> None:
        for key in effects.look:
            self._queue.add(key)
        if effects.check is not None and not self._is_sound(effects.check):
            self._queue.add(effects.check.key)
        for node, reference in effects.foreign:
            entry = self._store.reads.peek(*node.key)
            if entry is not None:
                with suppress(trio.WouldBlock):
                    self._reports.send_nowait((entry, foreign_owner(node, reference)))

    def _is_sound(self, node: Node) -> bool:
        """Whether all owners are there and may stay. If this view is behind, their end is still to come, and then the
        dependents are looked at."""
        registry, peek = self._store.registry, self._store.reads.peek
        return not any(
            self._graph.is_waiting(reference.uid)
            or isinstance(find_owner(node.key, reference, registry, peek), Standing)
            for reference in node.owners
        )

    async def _catch_up(self, revision: int) -> None:
        """Until all changes up to the revision are in the graph."""
        while not all(follower.has_seen(revision) for follower in self._followers.values()):
            self._hurry.set()
            self._hurry = trio.Event()
            await self._progress.park()

    # -- looking at objects -------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            self._unknown.discard(key)
            try:
                settled = await self._look_at(key)
            except (StatusError, LogError, ActorError) as error:
                log.info("%s %s/%s could not be looked after, trying again: %s", *key, error)
                settled = False
            if settled:
                self._queue.done(key)
            else:
                self._queue.retry(key)

    async def _look_at(self, key: Key) -> bool:
        """Do what is to be done about an object; False: it is to be looked at again."""
        for _ in range(MAX_ATTEMPTS):
            rt = self._store.registry.storage(key.resource)
            if rt is None:
                return True
            await self._catch_up(await self._store.reads.wait_consistent())
            # From here to the decision nothing else runs: all of it is of one moment.
            entry = self._store.reads.peek(*key)
            node = node_of(entry) if entry is not None else None
            if entry is None or node is None:
                return True
            registry, peek = self._store.registry, self._store.reads.peek
            standings = [standing_of(key, reference, registry, peek) for reference in node.owners]
            decision = decide(node, standings, self._graph.dependents(node.uid))
            if decision.act is Act.LATER:
                self._unknown.add(key)
                return False
            try:
                if await self._carry_out(rt, node, entry.revision, decision):
                    return True
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
        return False

    async def _carry_out(self, rt: ResourceType, node: Node, revision: int, decision: Decision) -> bool:
        """False: that was but a step, look again."""
        match decision.act:
            case Act.AWAIT_DEPENDENTS:
                for key in decision.look:
                    self._queue.add(key)
            case Act.DELETE:
                await self._delete(rt, node, revision, decision.policy)
            case Act.DROP_REFERENCES:
                await self._edit(rt, node, partial(without_owners, gone=frozenset(decision.references)))
            case Act.UNBLOCK_OWNERS:
                await self._edit(rt, node, without_blocking)
                return False
            case Act.ORPHAN_DEPENDENTS:
                await self._orphan(node)
                await self._edit(rt, node, partial(without_finalizer, finalizer=ORPHAN_FINALIZER))
                return False
            case Act.END_FOREGROUND:
                await self._edit(rt, node, partial(without_finalizer, finalizer=FOREGROUND_FINALIZER))
        return True

    async def _delete(self, rt: ResourceType, node: Node, revision: int, policy: str) -> None:
        """On condition that the object is as it was when its end was decided. StatusError 404, 409."""
        options = DeleteOptions(
            propagation_policy=policy,
            precondition_uid=node.uid,
            precondition_resource_version=str(revision),
        )
        await self._store.writes.delete(system_caller(COMPONENT, "delete"), self._target(rt, node.key), options)

    async def _edit(self, rt: ResourceType, node: Node, change: Change) -> None:
        """Change the object unless it is another by now. StatusError 404: it is gone."""

        def changed(obj: Object) -> Object:
            return change(obj) if obj["metadata"].get("uid") == node.uid else obj

        await self._store.writes.edit(system_caller(COMPONENT, "patch"), self._target(rt, node.key), changed)

    async def _orphan(self, owner: Node) -> None:
        """Take the owner out of its dependents' references. StatusError, LogError, ActorError: not all are done."""
        dependents = list(self._graph.dependents(owner.uid))
        for start in range(0, len(dependents), ORPHANED_AT_ONCE):
            failures: list[Exception] = []
            async with trio.open_nursery() as nursery:
                for dependent in dependents[start : start + ORPHANED_AT_ONCE]:
                    nursery.start_soon(self._let_go, owner, dependent, failures)
            if failures:
                raise failures[0]

    async def _let_go(self, owner: Node, dependent: Node, failures: list[Exception]) -> None:
        rt = self._store.registry.storage(dependent.key.resource)
        if rt is None:
            return
        gone = frozenset(reference for reference in dependent.owners if reference.uid == owner.uid)
        try:
            await self._edit(rt, dependent, partial(without_owners, gone=gone))
        except StatusError as error:
            if error.code != 404:
                failures.append(error)
        except (LogError, ActorError) as error:
            failures.append(error)

    @staticmethod
    def _target(rt: ResourceType, key: Key) -> Target:
        return Target(rt=rt, namespace=key.namespace, name=key.name, manager=MANAGER)

    # -- reports ------------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Make Events of owners in other namespaces; one that can't be made is not missed."""
        recorder = EventRecorder(self._store, SOURCE)
        async for entry, message in self._to_report:
            try:
                await recorder.warn(entry, "OwnerRefInvalidNamespace", message)
            except (LogError, ActorError) as error:
                log.info("an event about %s/%s could not be recorded: %s", entry.key.namespace, entry.key.name, error)


def is_collected(rt: ResourceType) -> bool:
    """Whether objects of this type can be owners and dependents."""
    return rt.resource not in IGNORED and set(rt.verbs) >= VERBS


# -- changes of objects -----------------------------------------------------------------------------------------------


def without_owners(obj: Object, *, gone: frozenset[Reference]) -> Object:
    """The object without these references."""
    return _with_owners(
        obj, [owner for owner in obj["metadata"].get("ownerReferences") or () if reference_of(owner) not in gone]
    )


def without_blocking(obj: Object) -> Object:
    """The object with all its references no longer blocking their owners' deletion."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return _with_owners(
        obj, [{**owner, "blockOwnerDeletion": False} if owner.get("blockOwnerDeletion") else owner for owner in owners]
    )


def _with_owners(obj: Object, owners: list[Object]) -> Object:
    metadata = {**obj["metadata"], "ownerReferences": owners}
    if not owners:
        del metadata["ownerReferences"]
    return {**obj, "metadata": metadata}


def without_finalizer(obj: Object, *, finalizer: str) -> Object:
    """The object without the finalizer."""
    metadata = obj["metadata"]
    finalizers = [one for one in metadata.get("finalizers") or () if one != finalizer]
    kept = {name: value for name, value in metadata.items() if name != "finalizers"}
    return {**obj, "metadata": {**kept, "finalizers": finalizers} if finalizers else kept}
