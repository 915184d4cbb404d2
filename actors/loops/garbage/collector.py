"""The garbage collector: deletes objects without owners, and finishes deletions that wait for dependents.

Does the work of kube-controller-manager's garbage collector (rules: garbage/decisions.py), so that a server without
controllers cascades deletions. A real one may run at the same time: both delete the same objects, on preconditions that
fail when the other was faster.

GraphBuilder follows all resources into one graph of owners and dependents, and queues objects; workers process them:

    changes of pods  ──┐           ┌── worker: read consistently, wait until the graph is as new, decide, write
    changes of …     ──┼── graph ──┤
    changes of …     ──┘   queue   └── worker

An object of an extension API server is collected, too, and may be an owner (graph_builder.py).

No other state is kept: after a restart everything is read from the objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.edits import NO_CHANGE
from kubechronicle.actors.loops.foreign_objects import ForeignObjects, NoForeignObjects
from kubechronicle.actors.loops.garbage.decisions import Act, GarbageDecision, OwnerState, decide, owner_state
from kubechronicle.actors.loops.garbage.graph import GraphNode, OwnerReference, node_of, reference_of
from kubechronicle.actors.loops.garbage.graph_builder import GraphBuilder
from kubechronicle.actors.loops.garbage.writers import COMPONENT, ForeignWriter, GarbageWriter, OwnWriter
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.store import Store
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.records import Key

# -- owner edits -------------------------------------------------------------------------------------------------------
#
# The garbage collector's changes of objects: owner references and finalizers. Pure.


def without_owners(obj: Object, *, gone: frozenset[OwnerReference]) -> Object:
    """Return the object without these references."""
    return _with_owners(
        obj, [owner for owner in obj["metadata"].get("ownerReferences") or () if reference_of(owner) not in gone]
    )


def without_blocking(obj: Object) -> Object:
    """Return the object with references that no longer block their owners' deletion."""
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
    """Return the object without the finalizer."""
    metadata = obj["metadata"]
    finalizers = [one for one in metadata.get("finalizers") or () if one != finalizer]
    kept = {name: value for name, value in metadata.items() if name != "finalizers"}
    return {**obj, "metadata": {**kept, "finalizers": finalizers} if finalizers else kept}


# -- collector ---------------------------------------------------------------------------------------------------------

# kube-controller-manager's --concurrent-gc-syncs.
WORKERS = 20
# Dependents orphaned at once.
ORPHANED_AT_ONCE = 64
# Attempts at one object that changes in the meantime, before it is retried later.
MAX_ATTEMPTS = 8
# Seconds before a failed object is retried, doubling.
FIRST_RETRY = 0.1
LONGEST_RETRY = 60.0


class GarbageCollector:
    """``foreign``: the objects of other servers."""

    def __init__(self, store: Store, foreign: ForeignObjects | None = None) -> None:
        self._store = store
        self._foreign = foreign if foreign is not None else NoForeignObjects()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Collect until cancelled. Restart with a new graph when changes were compacted before they were read."""
        task_status.started()
        while True:
            await Collection(self._store, self._foreign).run()


class Collection:
    """One graph and its workers."""

    def __init__(self, store: Store, foreign: ForeignObjects) -> None:
        self._store = store
        self._queue: WorkQueue[Key] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )
        self._builder = GraphBuilder(store, self._queue, foreign)
        self._others = self._builder.others
        self._graph = self._builder.graph

    async def run(self) -> None:
        """Return when the graph misses changes."""
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._process, workers=WORKERS, component=COMPONENT)
            await self._builder.run()
            nursery.cancel_scope.cancel()

    async def _process(self, key: Key) -> float | None:
        self._builder.unknown_kinds.discard(key)
        return 0.0 if await self._reconcile(key) else None

    async def _reconcile(self, key: Key) -> bool:
        """Decide about an object and act. Return False if it must be retried later."""
        asked: dict[OwnerReference, OwnerState] = {}  # owners that are objects of other servers
        for _ in range(MAX_ATTEMPTS):
            rt = self._store.registry.storage(key.resource)
            if rt is None:
                return await self._reconcile_foreign(key)
            needed = self._logs_of(key)
            for reads in needed:
                await self._builder.catch_up(reads)
            if self._logs_of(key) != needed:
                continue  # the object has changed meanwhile
            # No other task runs from here to the decision, so it is made on one state.
            entry = self._store.reads.peek(*key)
            node = node_of(entry) if entry is not None else None
            if entry is None or node is None:
                return True
            states = self._owner_states(node, asked)
            if OwnerState.UNKNOWN_KIND in states and not asked:
                asked = await self._others.owners(node, self._store.registry)
                if asked:
                    continue
            decision = decide(node, states, self._graph.dependents(node.uid))
            cause = self._builder.end_of(node) or self._queue.cause(key)
            if not cause and decision.act not in (Act.NOTHING, Act.LATER, Act.AWAIT_DEPENDENTS):
                cause = await self._end_of_owner(node, states) or entry.revision
            writer = OwnWriter(self._store, rt, node, revision=entry.revision, cause=cause)
            acted = await self._act(writer, node, decision)
            if acted is not None:
                return acted
        return False

    async def _reconcile_foreign(self, key: Key) -> bool:
        """Decide about an object of another server and act, as for own objects. StatusError: it does not answer."""
        for _ in range(MAX_ATTEMPTS):
            resource = self._others.resource(key.resource)
            found = await self._others.read(resource, key) if resource is not None else None
            if resource is None or found is None:
                return True
            node, obj = found
            asked = await self._others.owners(node, self._store.registry)
            for reads in self._store.reads.logs:
                await self._builder.catch_up(reads)
            decision = decide(node, self._owner_states(node, asked), self._graph.dependents(node.uid))
            acted = await self._act(ForeignWriter(self._others.foreign, resource, node, obj), node, decision)
            if acted is not None:
                return acted
        return False

    def _owner_states(self, node: GraphNode, asked: Mapping[OwnerReference, OwnerState]) -> list[OwnerState]:
        """Return the states of an object's owners. ``asked``: those of owners of other servers."""
        registry, peek = self._store.registry, self._store.reads.peek
        return [asked.get(one) or owner_state(node.key, one, registry, peek) for one in node.owners]

    async def _end_of_owner(self, node: GraphNode, states: Sequence[OwnerState]) -> int:
        """Return the revision at which an owner was deleted or began to wait, from the log: this server started, or
        followed a new resource, after it. 0: the log has none."""
        for owner, state in zip(node.owners, states, strict=True):
            rt = self._store.registry.by_api_version(owner.api_version, owner.kind)
            if rt is None or state not in (OwnerState.GONE, OwnerState.WAITING):
                continue
            query = ChangeQuery(
                resources=(rt.resource,),
                namespace=node.key.namespace if rt.namespaced else "",
                name=owner.name,
                texts=(("uid", Text(value=owner.uid)),),
                with_replaced=False,
            )
            for record, _ in await self._store.reads.of(rt.resource).log.changes(query, limit=1):
                return record.revision
        return NO_CHANGE

    async def _act(self, writer: GarbageWriter, node: GraphNode, decision: GarbageDecision) -> bool | None:
        """Act on a decision. Return what ``_reconcile`` does, or None: the object needs another decision."""
        if decision.act is Act.LATER:
            self._builder.unknown_kinds.add(node.key)
            return False
        try:
            return True if await self._carry_out(writer, node, decision) else None
        except StatusError as error:
            if error.code not in (404, 409):
                raise
            return None

    def _logs_of(self, key: Key) -> Sequence[Reads]:
        """Return the logs on which the decision about an object rests.

        The main log, that of the object, and those of its owners. An object that waits for its dependents may have them
        in any log. While a log does not answer, the decisions that rest on it wait.
        """
        reads, registry = self._store.reads, self._store.registry
        if len(reads.logs) == 1:
            return reads.logs
        entry = reads.peek(*key)
        node = node_of(entry) if entry is not None else None
        if node is not None and (node.waiting or node.orphaning):
            return reads.logs
        owners = [registry.by_api_version(each.api_version, each.kind) for each in node.owners] if node else []
        found = [reads, reads.of(key.resource), *(reads.of(rt.resource) for rt in owners if rt is not None)]
        return tuple(dict.fromkeys(found))

    async def _carry_out(self, writer: GarbageWriter, node: GraphNode, decision: GarbageDecision) -> bool:
        """Act on a decision. Return False if that was one step, and the object needs another decision."""
        match decision.act:
            case Act.DELETE:
                await writer.delete(decision.policy)
            case Act.DROP_REFERENCES:
                await writer.edit(partial(without_owners, gone=frozenset(decision.references)))
            case Act.UNBLOCK_OWNERS:
                await writer.edit(without_blocking)
                return False
            case Act.ORPHAN_DEPENDENTS:
                await self._orphan(node, self._queue.cause(node.key))
                await writer.edit(partial(without_finalizer, finalizer=ORPHAN_FINALIZER))
                return False
            case Act.END_FOREGROUND:
                await writer.edit(partial(without_finalizer, finalizer=FOREGROUND_FINALIZER))
        return True

    async def _orphan(self, owner: GraphNode, cause: int) -> None:
        """Remove the owner from its dependents' references. StatusError, LogError, ActorError: some still have it."""
        dependents = list(self._graph.dependents(owner.uid))
        for start in range(0, len(dependents), ORPHANED_AT_ONCE):
            failures: list[Exception] = []
            async with trio.open_nursery() as nursery:
                for dependent in dependents[start : start + ORPHANED_AT_ONCE]:
                    nursery.start_soon(self._remove_owner, owner, dependent, failures, cause)
            if failures:
                raise failures[0]

    async def _remove_owner(
        self, owner: GraphNode, dependent: GraphNode, failures: list[Exception], cause: int
    ) -> None:
        try:
            writer = await self._writer(dependent, cause)
            if writer is not None:
                gone = frozenset(reference for reference in dependent.owners if reference.uid == owner.uid)
                await writer.edit(partial(without_owners, gone=gone))
        except StatusError as error:
            if error.code != 404:
                failures.append(error)
        except (LogError, ActorError) as error:
            failures.append(error)

    async def _writer(self, node: GraphNode, cause: int) -> GarbageWriter | None:
        """Return the writer of an object of any server; None if it is gone. StatusError."""
        rt = self._store.registry.storage(node.key.resource)
        if rt is not None:
            return OwnWriter(self._store, rt, node, cause=cause)
        resource = self._others.resource(node.key.resource)
        found = await self._others.read(resource, node.key) if resource is not None else None
        if resource is None or found is None:
            return None
        return ForeignWriter(self._others.foreign, resource, *found)
