"""Protection of storage objects: a claim or volume in deletion stays until it is no longer used.

Admission adds a finalizer (StorageObjectInUseProtection). This loop removes it from

    a claim that no running pod mounts
    a volume that is not bound
    an attributes class that no volume or claim names

as the pvc-protection and pv-protection controllers of kube-controller-manager do. These may run at the same time: both
remove the same finalizers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import repeat

import trio

from kubechronicle.actors.loops.edits import edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

COMPONENT = "storage-protection-controller"
# Seconds until objects still in use are checked again: the end of a pod is no event of its claim.
RETRY_INTERVAL = 2.0

InUse = Callable[[Store, Sequence[Entry]], Awaitable[set[str]]]
"""Return the names of those among some objects, all of one namespace, that are in use."""


async def _claims_in_use(store: Store, claims: Sequence[Entry]) -> set[str]:
    """Return the claims that a scheduled pod mounts that has not ended. Other pods do not count: one that is not
    scheduled yet will not start with a claim in deletion."""
    used: set[str] = set()
    async for entries in in_turns(store.reads.entries("pods", claims[0].key.namespace)):
        for entry in entries:
            if not entry.fields.get("spec.nodeName") or entry.fields.get("status.phase") in ("Succeeded", "Failed"):
                continue
            for volume in entry.object()["spec"].get("volumes") or ():
                if "persistentVolumeClaim" in volume:
                    used.add(volume["persistentVolumeClaim"].get("claimName", ""))
                elif "ephemeral" in volume:
                    used.add(f"{entry.key.name}-{volume['name']}")
    return used


async def _volumes_in_use(store: Store, volumes: Sequence[Entry]) -> set[str]:
    return {each.key.name for each in volumes if (each.object().get("status") or {}).get("phase") == "Bound"}


async def _classes_in_use(store: Store, classes: Sequence[Entry]) -> set[str]:
    used: set[str] = set()
    for resource in ("persistentvolumes", "persistentvolumeclaims"):
        async for entries in in_turns(store.reads.entries(resource, "")):
            used |= {(entry.object().get("spec") or {}).get("volumeAttributesClassName") or "" for entry in entries}
    return used


# (group, plural) -> (finalizer, those in use)
PROTECTED: Mapping[tuple[str, str], tuple[str, InUse]] = {
    ("", "persistentvolumeclaims"): ("kubernetes.io/pvc-protection", _claims_in_use),
    ("", "persistentvolumes"): ("kubernetes.io/pv-protection", _volumes_in_use),
    ("storage.k8s.io", "volumeattributesclasses"): ("kubernetes.io/vac-protection", _classes_in_use),
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
        ending: dict[str, list[Entry]] = {}  # by namespace
        async for entries in in_turns(self._store.reads.entries(rt.resource, "")):
            for entry in entries:
                if _is_ending(entry, finalizer):
                    ending.setdefault(entry.key.namespace, []).append(entry)
        for found in ending.values():
            # A pod that another replica bound just now must be visible before its claim may be removed.
            await self._store.reads.wait_consistent()
            used = await in_use(self._store, found)
            left += sum(entry.key.name in used for entry in found)
            for entry in found:
                if entry.key.name not in used:
                    await self._remove_finalizer(rt, entry, finalizer)
        return trio.current_time() + RETRY_INTERVAL if left else None

    async def _remove_finalizer(self, rt: ResourceType, entry: Entry, finalizer: str) -> None:
        target = Target(rt=rt, namespace=entry.key.namespace, name=entry.key.name, manager=COMPONENT)

        def without(obj: Object) -> Object:
            finalizers = [one for one in obj["metadata"].get("finalizers", ()) if one != finalizer]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}

        await edit_if_exists(self._store, COMPONENT, target, without, cause=entry.revision)


def _is_ending(entry: Entry, finalizer: str) -> bool:
    """Return whether an object is in deletion, and has the finalizer."""
    if b'"deletionTimestamp":' not in entry.json:
        return False  # saves parsing the object
    metadata = entry.object()["metadata"]
    return "deletionTimestamp" in metadata and finalizer in metadata.get("finalizers", ())
