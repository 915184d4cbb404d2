"""ConfigMap ``kube-root-ca.crt`` of every namespace: by which authority pods know this server.

Does what kube-controller-manager's root CA certificate publisher does: the bundle is put into each namespace that is
not on its way out, made again when it was deleted, put right when it was changed. Whoever keeps publishing another
bundle (a replica with an authority of its own) is contradicted ever more rarely: no storm of writes comes of it.
"""

from __future__ import annotations

import logging

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "root-ca-cert-publisher"
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
# Seconds before what failed is tried again, doubling; the same between two repairs of one ConfigMap.
FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
LONGEST_PEACE = 3600.0
RESYNC_INTERVAL = 60.0


class RootCAPublisher:
    def __init__(self, store: Store, bundle: bytes) -> None:
        """``bundle``: certificates (PEM); what is no UTF-8 in the text around them does not matter."""
        self._store = store
        self._data = {KEY: bundle.decode(errors="replace")}
        self._namespaces = self._type("namespaces")
        self._maps = self._type("configmaps")
        self._queue: WorkQueue[str] = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY)
        # Of each namespace whose ConfigMap was repaired: how often in a row, and before which time not again.
        self._repairs: dict[str, tuple[int, float]] = {}

    def _type(self, plural: str) -> ResourceType:
        rt = self._store.registry.known("", "v1", plural)
        assert rt is not None, f"{plural} are a built-in resource"
        return rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch namespaces for new ones, and the ConfigMaps for what becomes of them."""
        self._queue = WorkQueue(first=FIRST_RETRY, longest=LONGEST_RETRY)
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._queue.run)
            nursery.start_soon(self._follow, self._namespaces)
            nursery.start_soon(self._follow, self._maps)
            await self._work()

    async def _follow(self, rt: ResourceType) -> None:
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                self._add_all()
                while True:
                    events = await watching.cursor.next_batch(trio.current_time() + RESYNC_INTERVAL)
                    for namespace in dict.fromkeys(map(concerned, events)):
                        if namespace:
                            self._queue.add(namespace)
                    if not events:
                        self._add_all()
            except Compacted:
                continue
            except (StatusError, LogError) as error:
                log.warning("%s could not be watched, trying again: %s", rt.plural, error)
                await trio.sleep(FIRST_RETRY)

    def _add_all(self) -> None:
        for entry in self._store.reads.entries(self._namespaces.resource, ""):
            self._queue.add(entry.key.name)

    async def _work(self) -> None:
        while True:
            namespace = await self._queue.take()
            try:
                wait = await self._complete(namespace)
            except (StatusError, LogError, ActorError) as error:
                log.info("%s of namespace %s could not be written, trying again: %s", NAME, namespace, error)
                self._queue.retry(namespace)
            else:
                if wait:
                    self._queue.later(namespace, wait)
                else:
                    self._queue.done(namespace)

    async def _complete(self, namespace: str) -> float:
        """Make the ConfigMap, or put it right; how many seconds to wait with that, usually 0."""
        entry = self._store.reads.peek(self._namespaces.resource, "", namespace)
        if entry is None or entry.fields.get("status.phase") == "Terminating":
            self._repairs.pop(namespace, None)
            return 0.0
        present = self._store.reads.peek(self._maps.resource, namespace, NAME)
        target = Target(rt=self._maps, namespace=namespace, name=NAME, manager=MANAGER)
        if present is None:
            await self._create(target)
            return 0.0
        if self._is_right(present.object()):
            return 0.0
        count, not_before = self._repairs.get(namespace, (0, 0.0))
        now = trio.current_time()
        if now < not_before:
            return not_before - now
        if now > not_before + LONGEST_PEACE:
            count = 0
        self._repairs[namespace] = (count + 1, now + min(LONGEST_PEACE, FIRST_RETRY * 2 ** min(count, 60)))
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, self._put_right)
        except StatusError as error:
            if error.code != 404:  # otherwise its deletion is on its way here
                raise
        return 0.0

    async def _create(self, target: Target) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "annotations": {ANNOTATION: DESCRIPTION}},
            "data": self._data,
        }
        try:
            await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
        except StatusError as error:
            # Somebody else was faster, or the namespace has gone meanwhile.
            if error.reason not in ("AlreadyExists", "NotFound", "Forbidden"):
                raise

    def _is_right(self, obj: Object) -> bool:
        return obj.get("data") == self._data and bool((obj["metadata"].get("annotations") or {}).get(ANNOTATION))

    def _put_right(self, obj: Object) -> Object:
        if self._is_right(obj):
            return obj
        annotations = {**(obj["metadata"].get("annotations") or {}), ANNOTATION: DESCRIPTION}
        return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}, "data": self._data}


def concerned(event: Event) -> str:
    """The namespace whose ConfigMap is to be looked at after a change of a namespace or a ConfigMap; "" if none is."""
    resource, namespace, name = event.entry.key
    if resource == "namespaces":
        return name
    return namespace if name == NAME else ""
