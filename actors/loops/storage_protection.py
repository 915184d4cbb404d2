"""Protection of storage objects: a claim or volume in deletion stays until it is no longer used.

Admission adds a finalizer (StorageObjectInUseProtection). This loop removes it from

    a claim that no running pod mounts
    a volume that is not bound
    an attributes class that no volume or claim names

as the pvc-protection and pv-protection controllers of kube-controller-manager do. These may run at the same time: both
remove the same finalizers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat

import trio

from kubechronicle.actors.loops.edits import edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

COMPONENT = "storage-protection-controller"
# Seconds until objects still in use are checked again: the end of a pod is no event of its claim.
RETRY_INTERVAL = 2.0

InUse = Callable[[Store, Object], bool]


def _claim_in_use(store: Store, claim: Object) -> bool:
    """Return True if a scheduled pod that has not ended mounts the claim. Other pods do not count: one that is not
    scheduled yet will not start with a claim in deletion."""
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


# (group, plural) -> (finalizer, check that the object is in use)
PROTECTED: Mapping[tuple[str, str], tuple[str, InUse]] = {
    ("", "persistentvolumeclaims"): ("kubernetes.io/pvc-protection", _claim_in_use),
    ("", "persistentvolumes"): ("kubernetes.io/pv-protection", _volume_in_use),
    ("storage.k8s.io", "volumeattributesclasses"): ("kubernetes.io/vac-protection", _class_in_use),
}


class StorageProtectionLoop:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow each protected resource."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            for (group, plural), (finalizer, in_use) in PROTECTED.items():
                rt = self._store.registry.builtin(group, "v1", plural)
                reflector = Reflector(
                    self._store.reads,
                    rt,
                    component=COMPONENT,
                    on_list=partial(self._release_unused, rt, finalizer, in_use),
                    delays=repeat(RETRY_INTERVAL),
                )
                nursery.start_soon(reflector.run)

    async def _release_unused(self, rt: ResourceType, finalizer: str, in_use: InUse) -> float | None:
        """Remove the finalizer from objects in deletion that are not used. Return when to check those in use again."""
        left = 0
        for entry in self._store.reads.entries(rt.resource, ""):
            if b'"deletionTimestamp":' not in entry.json:
                continue  # not in deletion: saves parsing the object
            obj = entry.object()
            if "deletionTimestamp" not in obj["metadata"] or finalizer not in obj["metadata"].get("finalizers", ()):
                continue
            # A pod that another replica bound just now must be visible before its claim may be removed.
            await self._store.reads.wait_consistent()
            if in_use(self._store, obj):
                left += 1
            else:
                await self._remove_finalizer(rt, entry, finalizer)
        return trio.current_time() + RETRY_INTERVAL if left else None

    async def _remove_finalizer(self, rt: ResourceType, entry: Entry, finalizer: str) -> None:
        target = Target(rt=rt, namespace=entry.key.namespace, name=entry.key.name, manager=COMPONENT)

        def without(obj: Object) -> Object:
            finalizers = [one for one in obj["metadata"].get("finalizers", ()) if one != finalizer]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}

        await edit_if_exists(self._store, COMPONENT, target, without)
