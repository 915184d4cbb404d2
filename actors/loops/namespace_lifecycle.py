"""Namespaces that are being deleted: their contents are deleted, then the namespace itself is let go.

Does what kube-controller-manager's namespace controller does, so that a namespace can be deleted with no controllers
beside the server; beside a real one it does no harm, since both only delete what is to go and finalize what is empty.
An object that keeps a finalizer keeps the namespace: its conditions say what is left and why, in that controller's
words, and it is looked at again, each namespace in its own time. A namespace that is empty at once gets no conditions,
which saves a write.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.conditions import with_condition
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "namespace-controller"
FINALIZER = "kubernetes"
# A namespace whose contents resist (finalizers, graceful deletion) is looked at again this often.
RETRY_INTERVAL = 1.0
MAX_RETRY_INTERVAL = 30.0

# Condition -> reason and message while all is well, reason and beginning of the message otherwise. The first two tell
# of API groups that cannot be discovered; here all resources are known, so they are always well.
CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered", "", ""),
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


class Resisting(NamedTuple):
    """A namespace that is not empty yet: its revision when it was left, when to look again, and how long that was."""

    revision: int
    due: float
    delay: float


class Remaining:
    """What is left of a namespace's contents."""

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}  # "pods." or "deployments.apps" -> instances
        self.finalizers: Counter[str] = Counter()  # finalizer -> instances that have it
        self.failures: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.resources or self.failures)

    def add(self, rt: ResourceType, entries: Sequence[Entry]) -> None:
        self.resources[f"{rt.plural}.{rt.group}"] = len(entries)
        for entry in entries:
            if b'"finalizers":' in entry.json:
                self.finalizers.update(set(entry.object()["metadata"].get("finalizers") or ()))

    def told(self) -> dict[str, str]:
        """What is wrong, by condition."""
        resources = sorted(f"{name} has {count} resource instances" for name, count in self.resources.items())
        finalizers = sorted(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
        found = {
            "NamespaceContentRemaining": ", ".join(resources),
            "NamespaceFinalizersRemaining": ", ".join(finalizers),
        }
        if self.failures:
            found["NamespaceDeletionContentFailure"] = f"{len(self.failures)} remaining: {'; '.join(self.failures)}"
        return found


def with_conditions(namespace: dict[str, Any], remaining: Remaining) -> dict[str, Any]:
    """The namespace with the five conditions that tell how far its deletion is."""
    told = remaining.told()
    for kind, (well, all_well, reason, beginning) in CONDITIONS.items():
        if wrong := told.get(kind):
            namespace = with_condition(namespace, kind, "True", reason=reason, message=beginning + wrong)
        else:
            namespace = with_condition(namespace, kind, "False", reason=well, message=all_well)
    return namespace


class NamespaceLifecycleLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        rt = store.registry.known("", "v1", "namespaces")
        assert rt is not None, "namespaces are a built-in resource"
        self._namespaces = rt
        self._resisting: dict[str, Resisting] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch namespaces, take care of those that are terminating."""
        task_status.started()
        while True:
            try:
                watching = await self._store.reads.watch(self._namespaces, Selection(), revision=None)
                while True:
                    await self._pass()
                    await watching.cursor.next_batch(min((each.due for each in self._resisting.values()), default=None))
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                log.warning("terminating namespaces could not be looked after, trying again: %s", error)
                await trio.sleep(RETRY_INTERVAL)

    async def _pass(self) -> None:
        """Work on every terminating namespace that has changed, or whose time has come again."""
        found = await self._store.reads.list(self._namespaces, Selection(), revision=0)
        terminating = [entry for entry in found.entries if entry.fields.get("status.phase") == "Terminating"]
        before, self._resisting = self._resisting, {}
        for entry in terminating:
            if (held := before.get(entry.key.name)) is not None:
                self._resisting[entry.key.name] = held
        for entry in terminating:
            held = self._resisting.get(entry.key.name)
            if held is not None and held.revision >= entry.revision and held.due > trio.current_time():
                continue
            revision: int | None = entry.revision
            try:
                revision = await self._finish(entry)
            except StatusError as error:
                log.info("namespace %s is not empty yet: %s", entry.key.name, error.message)
            if revision is None:
                self._resisting.pop(entry.key.name, None)
                continue
            delay = RETRY_INTERVAL if held is None else min(held.delay * 2, MAX_RETRY_INTERVAL)
            self._resisting[entry.key.name] = Resisting(revision, trio.current_time() + delay, delay)

    async def _finish(self, entry: Entry) -> int | None:
        """Delete the contents; if nothing is left, the finalizer goes, and the namespace with it. Otherwise the
        revision at which the namespace was left."""
        namespace = entry.key.name
        remaining = Remaining()
        for rt in self._contents():
            await self._empty(rt, namespace, remaining)
        if remaining:
            return await self._tell(entry, remaining)
        obj = entry.object()
        finalizers = obj.get("spec", {}).get("finalizers") or []
        if FINALIZER not in finalizers:  # somebody else's keeps it
            return await self._tell(entry, remaining) if obj["status"].get("conditions") else entry.revision

        target = Target(rt=self._namespaces, name=namespace, subresource="finalize", manager=COMPONENT)

        def without(obj: dict[str, object]) -> dict[str, object]:
            return {**obj, "spec": {"finalizers": [one for one in finalizers if one != FINALIZER]}}

        await self._store.writes.edit(system_caller(COMPONENT, "update"), target, without)
        return None

    async def _tell(self, entry: Entry, remaining: Remaining) -> int:
        """Say in the namespace's conditions what is left."""
        obj = entry.object()
        if with_conditions(obj, remaining) == obj:
            return entry.revision
        target = Target(rt=self._namespaces, name=entry.key.name, subresource="status", manager=COMPONENT)
        caller = system_caller(COMPONENT, "update")
        written = await self._store.writes.edit(caller, target, lambda held: with_conditions(held, remaining))
        return written.entry.revision if written.entry is not None else entry.revision

    def _contents(self) -> list[ResourceType]:
        """The storage type of each namespaced resource that can be deleted."""
        return [rt for rt in self._store.registry.stored() if rt.namespaced and "delete" in rt.verbs]

    async def _empty(self, rt: ResourceType, namespace: str, remaining: Remaining) -> None:
        here = await self._store.reads.list(rt, Selection(namespace=namespace), revision=0)
        if not here.entries:
            return
        caller = system_caller(COMPONENT, "deletecollection")
        target = Target(rt=rt, namespace=namespace, manager=COMPONENT)
        options = DeleteOptions(propagation_policy="Background")
        try:
            await self._store.writes.delete_collection(caller, target, Selection(namespace=namespace), options)
        except StatusError as error:
            remaining.failures.append(error.message)
        left = await self._store.reads.list(rt, Selection(namespace=namespace), revision=None)
        if left.entries:
            remaining.add(rt, left.entries)
