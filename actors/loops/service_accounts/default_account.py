"""The service account ``default`` of every namespace: without it no pod can be created there.

Does the work of kube-controller-manager's serviceaccount controller. A real one may run at the same time: the second of
the two finds the account created. A default account that was deleted is created again. A terminating namespace is
left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import trio

from kubechronicle.actors.loops.causes import deletion_of
from kubechronicle.actors.loops.edits import create_unless_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import each
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.records import Operation

COMPONENT = "service-account-controller"
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
            for rt, on_changes in ((self._namespaces, self._on_namespaces), (self._accounts, self._on_accounts)):
                reflector = Reflector(
                    self._store.reads,
                    rt,
                    component=COMPONENT,
                    on_list=self._complete_all,
                    on_changes=on_changes,
                    resync=RESYNC_INTERVAL,
                )
                nursery.start_soon(reflector.run)

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
        target = Target(rt=self._accounts, namespace=namespace, name=DEFAULT_NAME, manager=COMPONENT)
        account = {"metadata": {"name": DEFAULT_NAME}}
        gone = deletion_of(self._store.reads, self._accounts.resource, namespace, DEFAULT_NAME)
        cause = gone or entry.create_revision
        await create_unless_exists(self._store, COMPONENT, target, account, cause=cause, unless_namespace_ends=True)
