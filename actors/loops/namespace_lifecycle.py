"""Deletion of namespaces: the contents of a terminating namespace are deleted, then its finalizer is removed.

Does the work of kube-controller-manager's namespace controller, so that a namespace can be deleted without controllers.
A real one may run at the same time: both only delete contents and finalize empty namespaces.

    pods                       first; while one is left, nothing else is deleted (KEP-5080)
    all other own resources    then
    those of other servers     with them: deletecollection, or a deletion of each object

An object with a finalizer keeps its namespace, and so does a group of another server that does not answer: its objects
would reappear in the next namespace of that name. The namespace's conditions report both in that controller's words.
Each namespace is retried with a delay of its own. A namespace that is empty at once gets no conditions, which saves a
write.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec
import trio

from kubechronicle.actors.loops.edits import with_condition
from kubechronicle.actors.loops.foreign_objects import ForeignObjects, NoForeignObjects
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.api_services import ForeignResource
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.eventlog.entries import Ending, Entry, Event

log = logging.getLogger(__name__)

COMPONENT = "namespace-controller"
FINALIZER = "kubernetes"
# Seconds before a namespace with remaining contents (finalizers, graceful deletion) is retried, doubling.
RETRY_INTERVAL = 1.0
MAX_RETRY_INTERVAL = 30.0
# Namespaces emptied at a time (kube-controller-manager's --concurrent-namespace-syncs).
WORKERS: Final = 10
PODS: Final = "pods"
# Answers that say that a resource has no such verb, or no objects.
UNSUPPORTED: Final = frozenset({404, 405})
# Seconds that a pod gets to end if its spec has none.
GRACE: Final = 30

# Condition -> reason and message if there is no problem; reason and start of the message otherwise. The second is
# about group versions with a slash too many, which no APIService can have.
CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered", "All resources successfully discovered",
        "DiscoveryFailed", "Discovery failed for some groups, ",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions", "All legacy kube types successfully parsed", "", "",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
        "ContentDeletionFailed", "Failed to delete all resource types, ",
    ),
    "NamespaceContentRemaining": (
        "ContentRemoved", "All content successfully removed",
        "SomeResourcesRemain", "Some resources are remaining: ",
    ),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers", "All content-preserving finalizers finished",
        "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: ",
    ),
}  # fmt: skip


class Retry(NamedTuple):
    """The next attempt at a namespace that is not empty yet.

    ``revision``: of the namespace after the last attempt.
    ``due``: time of the next attempt (trio's clock).
    ``delay``: seconds between the two attempts.
    ``cause``: the revision at which the first attempt saw the namespace end.
    """

    revision: int
    due: float
    delay: float
    cause: int


class Remaining:
    """The remaining contents of a namespace. ``undiscovered``: group versions whose resources are unknown."""

    def __init__(self, undiscovered: Sequence[str] = ()) -> None:
        self.undiscovered = undiscovered
        self.resources: dict[str, int] = {}  # "pods." or "deployments.apps" -> instances
        self.finalizers: Counter[str] = Counter()  # finalizer -> instances with it
        self.failures: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.resources or self.failures or self.undiscovered)

    def add(self, name: str, count: int, finalizers: Mapping[str, int]) -> None:
        """Note the instances of a resource, and how many have each finalizer."""
        self.resources[name] = count
        self.finalizers.update(finalizers)

    def problems(self) -> dict[str, str]:
        """Return the end of the message of each condition that has a problem."""
        resources = sorted(f"{name} has {count} resource instances" for name, count in self.resources.items())
        finalizers = sorted(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
        problems = {
            "NamespaceContentRemaining": ", ".join(resources),
            "NamespaceFinalizersRemaining": ", ".join(finalizers),
        }
        if self.failures:
            failures = ", ".join(sorted(self.failures))
            problems["NamespaceDeletionContentFailure"] = f"{len(self.failures)} remaining: {failures}"
        if self.undiscovered:
            stale = ", ".join(f"{one}: stale GroupVersion discovery: {one}" for one in self.undiscovered)
            problems["NamespaceDeletionDiscoveryFailure"] = (
                f"{len(self.undiscovered)} failing: unable to retrieve the complete list of server APIs: {stale}"
            )
        return problems


def with_conditions(namespace: dict[str, Any], remaining: Remaining) -> dict[str, Any]:
    """Return the namespace with the five conditions that report the progress of its deletion."""
    problems = remaining.problems()
    for kind, (good_reason, good_message, reason, start) in CONDITIONS.items():
        if problem := problems.get(kind):
            namespace = with_condition(namespace, kind, "True", reason=reason, message=start + problem)
        else:
            namespace = with_condition(namespace, kind, "False", reason=good_reason, message=good_message)
    return namespace


class NamespaceLifecycleLoop:
    """``foreign``: the objects of other servers."""

    def __init__(self, store: Store, foreign: ForeignObjects | None = None) -> None:
        self._store = store
        self._foreign = foreign if foreign is not None else NoForeignObjects()
        self._namespaces = store.registry.builtin("", "v1", "namespaces")
        self._retries: dict[str, Retry] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow namespaces, and finish the deletion of terminating ones."""
        self._retries.clear()
        queue: WorkQueue[str] = WorkQueue(
            first=RETRY_INTERVAL, longest=MAX_RETRY_INTERVAL, measures=self._store.queue(COMPONENT)
        )
        reflector = Reflector(
            self._store.reads,
            self._namespaces,
            component=COMPONENT,
            on_list=partial(self._all, queue),
            on_changes=partial(self._changed, queue),
            delays=repeat(RETRY_INTERVAL),
        )
        task_status.started()
        async with trio.open_nursery() as nursery:
            queue.start(nursery, self._process, workers=WORKERS, component=COMPONENT)
            await reflector.run()

    async def _all(self, queue: WorkQueue[str]) -> None:
        for entry in self._store.reads.entries(self._namespaces.resource, ""):
            if _is_terminating(entry):
                queue.add(entry.key.name)

    async def _changed(self, queue: WorkQueue[str], events: Sequence[Event]) -> None:
        for event in events:
            if _is_terminating(event.entry):
                queue.add(event.entry.key.name)

    async def _process(self, name: str) -> float:
        """Try to finish a namespace. Return the seconds until the next attempt; 0: it is finished."""
        entry = self._store.reads.peek(self._namespaces.resource, "", name)
        if entry is None or not _is_terminating(entry):
            self._retries.pop(name, None)
            return 0.0
        last, now = self._retries.get(name), trio.current_time()
        if last is not None and last.revision >= entry.revision and last.due > now:
            return last.due - now
        revision: int | None = entry.revision
        cause = entry.revision if last is None else last.cause
        try:
            revision = await self._finish(entry, cause)
        except StatusError as error:
            log.info("namespace %s is not empty yet: %s", name, error.message)
        if revision is None:
            self._retries.pop(name, None)
            return 0.0
        delay = RETRY_INTERVAL if last is None else min(last.delay * 2, MAX_RETRY_INTERVAL)
        self._retries[name] = Retry(revision, trio.current_time() + delay, delay, cause)
        return delay

    async def _finish(self, entry: Entry, cause: int) -> int | None:
        """Delete the contents. If none remain, remove the finalizer and return None, else the namespace's revision."""
        remaining = Remaining(self._foreign.undiscovered())
        await self._empty_all(entry, remaining, cause)
        if remaining:
            return await self._report(entry, remaining, cause)
        obj = entry.object()
        finalizers = obj.get("spec", {}).get("finalizers") or []
        if FINALIZER not in finalizers:  # the finalizer of another controller keeps it
            return await self._report(entry, remaining, cause) if obj["status"].get("conditions") else entry.revision

        target = Target(rt=self._namespaces, name=entry.key.name, subresource="finalize", manager=COMPONENT)

        def without(obj: dict[str, object]) -> dict[str, object]:
            return {**obj, "spec": {"finalizers": [one for one in finalizers if one != FINALIZER]}}

        await self._store.writes.edit(system_caller(COMPONENT, "update", cause=cause), target, without)
        return None

    async def _report(self, entry: Entry, remaining: Remaining, cause: int) -> int:
        """Report the remaining contents in the namespace's conditions. Return the namespace's revision."""
        obj = entry.object()
        if with_conditions(obj, remaining) == obj:
            return entry.revision
        target = Target(rt=self._namespaces, name=entry.key.name, subresource="status", manager=COMPONENT)
        caller = system_caller(COMPONENT, "update", cause=cause)
        written = await self._store.writes.edit(caller, target, lambda held: with_conditions(held, remaining))
        return written.entry.revision if written.entry is not None else entry.revision

    # -- contents -----------------------------------------------------------------------------------------------------

    async def _empty_all(self, entry: Entry, remaining: Remaining, cause: int) -> None:
        """Delete the contents, and note what is left."""
        registry = self._store.registry
        own = [rt for rt in registry.stored() if rt.namespaced and "delete" in rt.verbs]
        for rt in own:
            if rt.resource == PODS:
                await self._empty(rt, entry, remaining, cause)
        if PODS in (name.rstrip(".") for name in remaining.resources):
            return
        for rt in own:
            if rt.resource != PODS:
                await self._empty(rt, entry, remaining, cause)
        for resource in self._foreign.resources():
            if resource.namespaced and "delete" in resource.verbs:
                await self._empty_foreign(resource, entry.key.name, remaining)

    async def _empty(self, rt: ResourceType, entry: Entry, remaining: Remaining, cause: int) -> None:
        namespace = entry.key.name
        present = await self._store.reads.list(rt, Selection(namespace=namespace), revision=0)
        if not present.entries:
            return
        # Pods may take this time, counted from the deletion of the namespace.
        ends = await _termination(present.entries, entry.ending()) if rt.resource == PODS else None
        caller = system_caller(COMPONENT, "deletecollection", cause=cause)
        target = Target(rt=rt, namespace=namespace, manager=COMPONENT)
        options = DeleteOptions(propagation_policy="Background")
        try:
            await self._store.writes.delete_collection(caller, target, Selection(namespace=namespace), options)
        except StatusError as error:
            remaining.failures.append(error.message)
        left = await self._store.reads.list(rt, Selection(namespace=namespace), revision=None)
        if not left.entries:
            return
        finalizers: Counter[str] = Counter()
        async for part in in_turns(left.entries):
            for one in part:
                finalizers.update(_finalizers(one))
        remaining.add(f"{rt.plural}.{rt.group}", len(left.entries), finalizers)
        if not finalizers and (ends is None or ends <= datetime.now(UTC)):
            remaining.failures.append(_unexpected(namespace, rt.group, rt.version, rt.plural))

    async def _empty_foreign(self, resource: ForeignResource, namespace: str, remaining: Remaining) -> None:
        """Delete the objects of another server, and note what is left, as for own ones."""
        try:
            if not await self._delete_foreign(resource, namespace):
                return
            left = await self._foreign.list(resource, namespace)
        except StatusError as error:
            if error.code not in UNSUPPORTED:
                remaining.failures.append(error.message)
            return
        if left:
            finalizers, pauses = Counter[str](), Pauses()
            for one in left:
                finalizers.update(_foreign_finalizers(one))
                await pauses.pause()
            remaining.add(f"{resource.plural}.{resource.group}", len(left), finalizers)
            if not finalizers:
                remaining.failures.append(_unexpected(namespace, resource.group, resource.version, resource.plural))

    async def _delete_foreign(self, resource: ForeignResource, namespace: str) -> bool:
        """Delete all objects at once, or one after the other. Return False if they cannot be listed. StatusError."""
        if "deletecollection" in resource.verbs:
            try:
                await self._foreign.delete_collection(resource, namespace)
                return "list" in resource.verbs
            except StatusError as error:
                if error.code not in UNSUPPORTED:
                    raise
        if "list" not in resource.verbs:
            return False
        for one in await self._foreign.list(resource, namespace):
            name = str((one.get("metadata") or {}).get("name") or "")
            try:
                await self._foreign.delete(resource, namespace, name, {"propagationPolicy": "Background"})
            except StatusError as error:
                if error.code not in UNSUPPORTED:
                    raise
        return True


def _is_terminating(entry: Entry) -> bool:
    return entry.fields.get("status.phase") == "Terminating"


def _finalizers(entry: Entry) -> set[str]:
    return set(entry.ending().finalizers or ()) if b'"finalizers":' in entry.json else set()


def _foreign_finalizers(obj: ReadOnlyObject) -> set[str]:
    metadata = obj.get("metadata")
    return set(metadata.get("finalizers") or ()) if isinstance(metadata, dict) else set()


class _RemainingPodSpec(msgspec.Struct):
    grace: int | None = msgspec.field(name="terminationGracePeriodSeconds", default=None)


class _RemainingPod(msgspec.Struct):
    """The part of a pod that is read here; the rest may be large."""

    spec: _RemainingPodSpec


_POD: Final = msgspec.json.Decoder(_RemainingPod)


async def _termination(pods: Sequence[Entry], namespace: Ending) -> datetime:
    """Return the time by which the running pods should have ended."""
    longest = 0
    async for part in in_turns(pods):
        for entry in part:
            if entry.fields.get("status.phase") not in ("Succeeded", "Failed"):
                grace = _POD.decode(entry.json).spec.grace
                longest = max(longest, GRACE if grace is None else grace)
    return datetime.fromisoformat(namespace.deleted or "") + timedelta(seconds=longest)


def _unexpected(namespace: str, group: str, version: str, plural: str) -> str:
    where = f"{group}/{version}, Resource={plural}"
    return f"unexpected items still remain in namespace: {namespace} for gvr: {where}"
