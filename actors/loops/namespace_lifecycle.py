"""Namespaces that are being deleted: their contents are deleted, then the namespace itself is let go.

Does what kube-controller-manager's namespace controller does, so that a namespace can be deleted with no controllers
beside the server; beside a real one it does no harm, since both only delete what is to go and finalize what is empty.
An object that keeps a finalizer keeps the namespace, and is looked at again.
"""

from __future__ import annotations

import logging

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writes import Target
from kubechronicle.api.options import DeleteOptions
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.status import StatusError
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "namespace-controller"
FINALIZER = "kubernetes"
# A namespace whose contents resist (finalizers, graceful deletion) is looked at again this often.
RETRY_INTERVAL = 1.0
MAX_RETRY_INTERVAL = 30.0


class NamespaceLifecycleLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        rt = store.registry.known("", "v1", "namespaces")
        assert rt is not None, "namespaces are a built-in resource"
        self._namespaces = rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch namespaces, take care of those that are terminating."""
        task_status.started()
        delay = RETRY_INTERVAL
        while True:
            try:
                watching = await self._store.reads.watch(self._namespaces, Selection(), revision=None)
                while True:
                    left = await self._pass()
                    delay = min(delay * 2, MAX_RETRY_INTERVAL) if left else RETRY_INTERVAL
                    deadline = trio.current_time() + delay if left else None
                    await watching.cursor.next_batch(deadline)
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                log.warning("terminating namespaces could not be looked after, trying again: %s", error)
                await trio.sleep(delay)

    async def _pass(self) -> int:
        """Work on every terminating namespace; how many of them are still there afterwards."""
        found = await self._store.reads.list(self._namespaces, Selection(), revision=0)
        left = 0
        for entry in found.entries:
            if entry.fields.get("status.phase") == "Terminating":
                try:
                    left += not await self._finish(entry)
                except StatusError as error:
                    left += 1
                    log.info("namespace %s is not empty yet: %s", entry.key.name, error.message)
        return left

    async def _finish(self, entry: Entry) -> bool:
        """Delete the contents; if nothing is left, the finalizer goes, and the namespace with it."""
        namespace = entry.key.name
        remaining = 0
        for rt in self._contents():
            remaining += await self._empty(rt, namespace)
        if remaining:
            return False
        finalizers = entry.object().get("spec", {}).get("finalizers") or []
        if FINALIZER not in finalizers:
            return False  # somebody else's finalizer keeps it

        target = Target(rt=self._namespaces, name=namespace, subresource="finalize", manager=COMPONENT)

        def without(obj: dict[str, object]) -> dict[str, object]:
            return {**obj, "spec": {"finalizers": [one for one in finalizers if one != FINALIZER]}}

        await self._store.writes.edit(system_caller(COMPONENT, "update"), target, without)
        return True

    def _contents(self) -> list[ResourceType]:
        """The storage type of each namespaced resource that can be deleted."""
        return [rt for rt in self._store.registry.stored() if rt.namespaced and "delete" in rt.verbs]

    async def _empty(self, rt: ResourceType, namespace: str) -> int:
        here = await self._store.reads.list(rt, Selection(namespace=namespace), revision=0)
        if not here.entries:
            return 0
        caller = system_caller(COMPONENT, "deletecollection")
        target = Target(rt=rt, namespace=namespace, manager=COMPONENT)
        options = DeleteOptions(propagation_policy="Background")
        await self._store.writes.delete_collection(caller, target, Selection(namespace=namespace), options)
        left = await self._store.reads.list(rt, Selection(namespace=namespace), revision=None)
        return len(left.entries)
