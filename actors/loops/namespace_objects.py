"""Objects of every namespace: its default service account, and the ConfigMap with the certificate authority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import trio

from kubechronicle.actors.loops.edits import create_unless_exists, deletion_of, edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector, follow_each
from kubechronicle.actors.loops.retries import each
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.records import Operation

# -- default account ---------------------------------------------------------------------------------------------------
#
# The service account ``default`` of every namespace: without it no pod can be created there.
#
# Does the work of kube-controller-manager's serviceaccount controller. A real one may run at the same time: the second
# of the two finds the account created. A default account that was deleted is created again. A terminating namespace is
# left alone.


ACCOUNTS = "service-account-controller"
DEFAULT_NAME = "default"
# Seconds without a change after which all namespaces are checked again.
RESYNC_INTERVAL = 60.0


class ServiceAccountLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespaces = store.registry.builtin("", "v1", "namespaces")
        self._accounts = store.registry.builtin("", "v1", "serviceaccounts")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow namespaces for new ones, and accounts for deleted default ones."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            changes = ((self._namespaces, self._on_namespaces), (self._accounts, self._on_accounts))
            follow_each(
                nursery,
                self._store.reads,
                changes,
                component=ACCOUNTS,
                on_list=self._complete_all,
                resync=RESYNC_INTERVAL,
            )

    async def _on_namespaces(self, events: Sequence[Event]) -> None:
        await self._complete_each(event.entry.key.name for event in events if event.operation is Operation.CREATE)

    async def _on_accounts(self, events: Sequence[Event]) -> None:
        deleted = (event.entry.key for event in events if event.operation is Operation.DELETE)
        await self._complete_each(key.namespace for key in deleted if key.name == DEFAULT_NAME)

    async def _complete_all(self) -> None:
        listing = await self._store.reads.list(self._namespaces, Selection(), revision=0)
        await self._complete_each(entry.key.name for entry in listing.entries)

    async def _complete_each(self, namespaces: Iterable[str]) -> None:
        await each(partial(self._complete, name) for name in sorted(set(namespaces)))

    async def _complete(self, namespace: str) -> None:
        """Create the account unless it exists or the namespace is terminating."""
        entry = self._store.reads.peek(self._namespaces.resource, "", namespace)
        if entry is None or entry.fields.get("status.phase") == "Terminating":
            return
        if self._store.reads.peek(self._accounts.resource, namespace, DEFAULT_NAME) is not None:
            return
        target = Target(rt=self._accounts, namespace=namespace, name=DEFAULT_NAME, manager=ACCOUNTS)
        account = {"metadata": {"name": DEFAULT_NAME}}
        gone = deletion_of(self._store.reads, self._accounts.resource, namespace, DEFAULT_NAME)
        cause = gone or entry.create_revision
        await create_unless_exists(self._store, ACCOUNTS, target, account, cause=cause, unless_namespace_ends=True)


# -- root ca publisher -------------------------------------------------------------------------------------------------
#
# ConfigMap ``kube-root-ca.crt`` of every namespace: the certificate authority by which pods know this server.
#
# Does the work of kube-controller-manager's root CA certificate publisher: each namespace that is not terminating gets
# the bundle. A deleted ConfigMap is created again, a changed one is repaired. If a replica with another authority keeps
# publishing its own bundle, each repair waits twice as long as the one before, so no storm of writes arises.


PUBLISHER = "root-ca-cert-publisher"
# The field manager under which kube-controller-manager writes the same.
MANAGER = "kube-controller-manager"
NAME = "kube-root-ca.crt"
KEY = "ca.crt"
ANNOTATION = "kubernetes.io/description"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
# Seconds before a failed namespace is retried, doubling.
FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
# Between two repairs of one ConfigMap: FIRST_RETRY, doubling up to this. As long without a repair resets it.
LONGEST_REPAIR_DELAY = 3600.0


class RootCAPublisher:
    """``bundle``: certificates (PEM). Bytes around them that are not UTF-8 are replaced."""

    def __init__(self, store: Store, bundle: bytes) -> None:
        self._store = store
        self._data = {KEY: bundle.decode(errors="replace")}
        self._namespaces = store.registry.builtin("", "v1", "namespaces")
        self._maps = store.registry.builtin("", "v1", "configmaps")
        self._queue: WorkQueue[str] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(PUBLISHER)
        )
        # By namespace: repairs in a row, and the earliest time of the next one.
        self._repairs: dict[str, tuple[int, float]] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow namespaces and ConfigMaps, and repair the ConfigMap of each namespace that has changed."""
        self._queue = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY, measures=self._store.queue(PUBLISHER))
        task_status.started()
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._reconcile, component=PUBLISHER)
            for rt in (self._namespaces, self._maps):
                reflector = Reflector(
                    self._store.reads,
                    rt,
                    component=PUBLISHER,
                    on_list=self._add_all,
                    on_changes=self._add_changed,
                    resync=RESYNC_INTERVAL,
                )
                nursery.start_soon(reflector.run)

    async def _add_all(self) -> None:
        async for part in in_turns(self._store.reads.entries(self._namespaces.resource, "")):
            for entry in part:
                self._queue.add(entry.key.name)

    async def _add_changed(self, events: Sequence[Event]) -> None:
        for namespace in dict.fromkeys(map(changed_namespace, events)):
            if namespace:
                self._queue.add(namespace)

    async def _reconcile(self, namespace: str) -> float:
        """Create or repair the ConfigMap. Return the seconds until a repair may be made, usually 0."""
        entry = self._store.reads.peek(self._namespaces.resource, "", namespace)
        if entry is None or entry.fields.get("status.phase") == "Terminating":
            self._repairs.pop(namespace, None)
            return 0.0
        present = self._store.reads.peek(self._maps.resource, namespace, NAME)
        target = Target(rt=self._maps, namespace=namespace, name=NAME, manager=MANAGER)
        if present is None:
            await self._create(target, entry.create_revision)
            return 0.0
        if self._is_complete(present.object()):
            return 0.0
        count, not_before = self._repairs.get(namespace, (0, 0.0))
        now = trio.current_time()
        if now < not_before:
            return not_before - now
        if now > not_before + LONGEST_REPAIR_DELAY:
            count = 0
        self._repairs[namespace] = (count + 1, now + min(LONGEST_REPAIR_DELAY, FIRST_RETRY * 2 ** min(count, 60)))
        await edit_if_exists(self._store, PUBLISHER, target, self._repaired, cause=present.revision)
        return 0.0

    async def _create(self, target: Target, created: int) -> None:
        obj = {"metadata": {"name": NAME, "annotations": {ANNOTATION: DESCRIPTION}}, "data": self._data}
        cause = deletion_of(self._store.reads, self._maps.resource, target.namespace, NAME) or created
        await create_unless_exists(self._store, PUBLISHER, target, obj, cause=cause, unless_namespace_ends=True)

    def _is_complete(self, obj: Object) -> bool:
        return obj.get("data") == self._data and bool((obj["metadata"].get("annotations") or {}).get(ANNOTATION))

    def _repaired(self, obj: Object) -> Object:
        if self._is_complete(obj):
            return obj
        annotations = {**(obj["metadata"].get("annotations") or {}), ANNOTATION: DESCRIPTION}
        return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}, "data": self._data}


def changed_namespace(event: Event) -> str:
    """Return the namespace that changed, or whose ConfigMap changed; "" for any other ConfigMap."""
    resource, namespace, name = event.entry.key
    if resource == "namespaces":
        return name
    return namespace if name == NAME else ""
