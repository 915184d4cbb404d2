"""The service account ``default`` of every namespace: without it no pod could be made there.

Does what kube-controller-manager's serviceaccount controller does; beside a real one it does no harm, since whoever
comes second finds the account made. A default account that was deleted is made again, a terminating namespace is left
alone.
"""

from __future__ import annotations

import logging

import trio

from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.records import Operation

log = logging.getLogger(__name__)

COMPONENT = "service-account-controller"
DEFAULT_NAME = "default"
# What could not be made is tried again after this many seconds, and the whole is looked through as often at least.
RETRY_INTERVAL = 1.0
RESYNC_INTERVAL = 60.0


class ServiceAccountLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespaces = self._type("namespaces")
        self._accounts = self._type("serviceaccounts")

    def _type(self, plural: str) -> ResourceType:
        rt = self._store.registry.known("", "v1", plural)
        assert rt is not None, f"{plural} are a built-in resource"
        return rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch namespaces, and accounts for the default ones that go."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, self._namespaces)
            nursery.start_soon(self._follow, self._accounts)

    async def _follow(self, rt: ResourceType) -> None:
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                await self._complete_all()
                while True:
                    events = await watching.cursor.next_batch(trio.current_time() + RESYNC_INTERVAL)
                    if rt is self._namespaces:
                        spaces = {event.entry.key.name for event in events if event.operation is Operation.CREATE}
                    else:
                        gone = (event.entry.key for event in events if event.operation is Operation.DELETE)
                        spaces = {key.namespace for key in gone if key.name == DEFAULT_NAME}
                    for name in sorted(spaces):
                        await self._complete(name)
                    if not events:
                        await self._complete_all()
            except Compacted:
                continue
            except (StatusError, LogError) as error:
                log.warning("default service accounts could not be looked after, trying again: %s", error)
                await trio.sleep(RETRY_INTERVAL)

    async def _complete_all(self) -> None:
        found = await self._store.reads.list(self._namespaces, Selection(), revision=0)
        for entry in found.entries:
            await self._complete(entry.key.name)

    async def _complete(self, namespace: str) -> None:
        """Make the account unless it is there, or the namespace on its way out."""
        entry = self._store.reads.peek(self._namespaces.resource, "", namespace)
        if entry is None or entry.fields.get("status.phase") == "Terminating":
            return
        if self._store.reads.peek(self._accounts.resource, namespace, DEFAULT_NAME) is not None:
            return
        target = Target(rt=self._accounts, namespace=namespace, name=DEFAULT_NAME, manager=COMPONENT)
        body = {"apiVersion": "v1", "kind": self._accounts.kind, "metadata": {"name": DEFAULT_NAME}}
        try:
            await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
        except StatusError as error:
            # Somebody else was faster, or the namespace has gone meanwhile.
            if error.reason not in ("AlreadyExists", "NotFound", "Forbidden"):
                raise
