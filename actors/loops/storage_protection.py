"""Claims and volumes that are being deleted go once nobody uses them any more.

Admission gives them a finalizer (StorageObjectInUseProtection); here it is taken away again, as the pvc-protection and
pv-protection controllers of kube-controller-manager do: from a claim that no running pod mounts, from a volume that is
not bound, from an attributes class that no volume names. Beside a real controller it does no harm: both take away the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "storage-protection-controller"
# What is still in use is looked at again this often: a pod's end is no event of the claim.
RETRY_INTERVAL = 2.0

InUse = Callable[[Store, Object], bool]


def _claim_in_use(store: Store, claim: Object) -> bool:
    """A scheduled pod that has not ended mounts it; one that is not scheduled yet will not be started with it."""
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    for entry in store.reads.entries("pods", namespace):
        if not entry.fields.get("spec.nodeName") or entry.fields.get("status.phase") in ("Succeeded", "Failed"):
            continue
        pod = entry.object()
        for volume in pod["spec"].get("volumes") or ():
            if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name:
                return True
            if "ephemeral" in volume and f"{pod['metadata']['name']}-{volume['name']}" == name:
                return True
    return False


def _volume_in_use(store: Store, volume: Object) -> bool:
    return (volume.get("status") or {}).get("phase") == "Bound"


def _class_in_use(store: Store, attributes_class: Object) -> bool:
    name = attributes_class["metadata"]["name"]
    volumes = store.reads.entries("persistentvolumes", "")
    claims = store.reads.entries("persistentvolumeclaims", "")
    return any(
        (entry.object().get("spec") or {}).get("volumeAttributesClassName") == name for entry in (*volumes, *claims)
    )


# (group, plural) -> (finalizer, whether it still protects)
PROTECTED: Mapping[tuple[str, str], tuple[str, InUse]] = {
    ("", "persistentvolumeclaims"): ("kubernetes.io/pvc-protection", _claim_in_use),
    ("", "persistentvolumes"): ("kubernetes.io/pv-protection", _volume_in_use),
    ("storage.k8s.io", "volumeattributesclasses"): ("kubernetes.io/vac-protection", _class_in_use),
}


class StorageProtectionLoop:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch each protected resource."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            for (group, plural), (finalizer, in_use) in PROTECTED.items():
                rt = self._store.registry.known(group, "v1", plural)
                if rt is not None:
                    nursery.start_soon(self._follow, rt, finalizer, in_use)

    async def _follow(self, rt: ResourceType, finalizer: str, in_use: InUse) -> None:
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                while True:
                    left = await self._pass(rt, finalizer, in_use)
                    await watching.cursor.next_batch(trio.current_time() + RETRY_INTERVAL if left else None)
            except Compacted:
                continue
            except (StatusError, LogError) as error:
                log.warning("%s could not be looked after, trying again: %s", rt.plural, error)
                await trio.sleep(RETRY_INTERVAL)

    async def _pass(self, rt: ResourceType, finalizer: str, in_use: InUse) -> int:
        """Let go of what nobody uses; how many are still in use."""
        left = 0
        for entry in self._store.reads.entries(rt.resource, ""):
            if b'"deletionTimestamp":' not in entry.json:
                continue  # spares taking apart what is not being deleted
            obj = entry.object()
            if "deletionTimestamp" not in obj["metadata"] or finalizer not in obj["metadata"].get("finalizers", ()):
                continue
            # A pod that another replica bound just now must be seen before its claim may go.
            await self._store.reads.wait_consistent()
            if in_use(self._store, obj):
                left += 1
            else:
                await self._let_go(rt, entry, finalizer)
        return left

    async def _let_go(self, rt: ResourceType, entry: Entry, finalizer: str) -> None:
        target = Target(rt=rt, namespace=entry.key.namespace, name=entry.key.name, manager=COMPONENT)

        def without(obj: Object) -> Object:
            finalizers = [one for one in obj["metadata"].get("finalizers", ()) if one != finalizer]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}

        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, without)
        except StatusError as error:
            if error.code != 404:
                raise
