"""Deletion of namespaces: the contents of a terminating namespace are deleted, then its finalizer is removed.

Does the work of kube-controller-manager's namespace controller, so that a namespace can be deleted without controllers.
A real one may run at the same time: both only delete contents and finalize empty namespaces.

An object with a finalizer keeps its namespace. The namespace's conditions report the remaining objects in that
controller's words, and each namespace is retried with a delay of its own. A namespace that is empty at once gets no
conditions, which saves a write.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import trio

from kubechronicle.actors.loops.conditions import with_condition
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry

log = logging.getLogger(__name__)

COMPONENT = "namespace-controller"
FINALIZER = "kubernetes"
# Seconds before a namespace with remaining contents (finalizers, graceful deletion) is retried, doubling.
RETRY_INTERVAL = 1.0
MAX_RETRY_INTERVAL = 30.0

# Condition -> reason and message if there is no problem; reason and start of the message otherwise. The first two are
# about API groups that cannot be discovered. Here all resources are known, so they never have a problem.
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


class Retry(NamedTuple):
    """The next attempt at a namespace that is not empty yet.

    ``revision``: of the namespace after the last attempt.
    ``due``: time of the next attempt (trio's clock).
    ``delay``: seconds between the two attempts.
    """

    revision: int
    due: float
    delay: float


class Remaining:
    """The remaining contents of a namespace."""

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}  # "pods." or "deployments.apps" -> instances
        self.finalizers: Counter[str] = Counter()  # finalizer -> instances with it
        self.failures: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.resources or self.failures)

    def add(self, rt: ResourceType, entries: Sequence[Entry]) -> None:
        self.resources[f"{rt.plural}.{rt.group}"] = len(entries)
        for entry in entries:
            if b'"finalizers":' in entry.json:
                self.finalizers.update(set(entry.object()["metadata"].get("finalizers") or ()))

    def problems(self) -> dict[str, str]:
        """Return the end of the message of each condition that has a problem."""
        resources = sorted(f"{name} has {count} resource instances" for name, count in self.resources.items())
        finalizers = sorted(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
        problems = {
            "NamespaceContentRemaining": ", ".join(resources),
            "NamespaceFinalizersRemaining": ", ".join(finalizers),
        }
        if self.failures:
            problems["NamespaceDeletionContentFailure"] = f"{len(self.failures)} remaining: {'; '.join(self.failures)}"
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
    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespaces = store.registry.builtin("", "v1", "namespaces")
        self._retries: dict[str, Retry] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow namespaces, and finish the deletion of terminating ones."""
        task_status.started()
        reflector = Reflector(
            self._store.reads, self._namespaces, component=COMPONENT, on_list=self._pass, delays=repeat(RETRY_INTERVAL)
        )
        await reflector.run()

    async def _pass(self) -> float | None:
        """Try every terminating namespace that has changed or is due. Return when the next one is due."""
        listing = await self._store.reads.list(self._namespaces, Selection(), revision=0)
        terminating = [entry for entry in listing.entries if entry.fields.get("status.phase") == "Terminating"]
        names = {entry.key.name for entry in terminating}
        self._retries = {name: retry for name, retry in self._retries.items() if name in names}
        for entry in terminating:
            last = self._retries.get(entry.key.name)
            if last is not None and last.revision >= entry.revision and last.due > trio.current_time():
                continue
            revision: int | None = entry.revision
            try:
                revision = await self._finish(entry)
            except StatusError as error:
                log.info("namespace %s is not empty yet: %s", entry.key.name, error.message)
            if revision is None:
                self._retries.pop(entry.key.name, None)
                continue
            delay = RETRY_INTERVAL if last is None else min(last.delay * 2, MAX_RETRY_INTERVAL)
            self._retries[entry.key.name] = Retry(revision, trio.current_time() + delay, delay)
        return min((retry.due for retry in self._retries.values()), default=None)

    async def _finish(self, entry: Entry) -> int | None:
        """Delete the contents. If none remain, remove the finalizer and return None, else the namespace's revision."""
        namespace = entry.key.name
        remaining = Remaining()
        for rt in self._contents():
            await self._empty(rt, namespace, remaining)
        if remaining:
            return await self._report(entry, remaining)
        obj = entry.object()
        finalizers = obj.get("spec", {}).get("finalizers") or []
        if FINALIZER not in finalizers:  # the finalizer of another controller keeps it
            return await self._report(entry, remaining) if obj["status"].get("conditions") else entry.revision

        target = Target(rt=self._namespaces, name=namespace, subresource="finalize", manager=COMPONENT)

        def without(obj: dict[str, object]) -> dict[str, object]:
            return {**obj, "spec": {"finalizers": [one for one in finalizers if one != FINALIZER]}}

        await self._store.writes.edit(system_caller(COMPONENT, "update"), target, without)
        return None

    async def _report(self, entry: Entry, remaining: Remaining) -> int:
        """Report the remaining contents in the namespace's conditions. Return the namespace's revision."""
        obj = entry.object()
        if with_conditions(obj, remaining) == obj:
            return entry.revision
        target = Target(rt=self._namespaces, name=entry.key.name, subresource="status", manager=COMPONENT)
        caller = system_caller(COMPONENT, "update")
        written = await self._store.writes.edit(caller, target, lambda held: with_conditions(held, remaining))
        return written.entry.revision if written.entry is not None else entry.revision

    def _contents(self) -> list[ResourceType]:
        """Return the storage type of each namespaced resource that can be deleted."""
        return [rt for rt in self._store.registry.stored() if rt.namespaced and "delete" in rt.verbs]

    async def _empty(self, rt: ResourceType, namespace: str, remaining: Remaining) -> None:
        present = await self._store.reads.list(rt, Selection(namespace=namespace), revision=0)
        if not present.entries:
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
