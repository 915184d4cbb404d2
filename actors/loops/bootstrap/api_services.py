"""The APIServices of the built-in API, one per group version, written at the start (kube-aggregator's
autoregistration). They are local, so always available.

    v1.apps     {group: apps, version: v1, groupPriorityMinimum: 17800, versionPriority: 15}     Available, Local

A version that the registry no longer serves loses its APIService at the next start. Changes between two starts are
left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from kubechronicle.actors.loops.edits import create_unless_exists, delete_if_exists
from kubechronicle.actors.loops.retries import Pass, each, first_pass
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.objects import Object

COMPONENT = "autoregister"
MANAGER = "kube-apiserver"
API_SERVICES = "apiservices.apiregistration.k8s.io"
GROUP = "apiregistration.k8s.io"
MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
ON_START: Final = "onstart"

GROUP_PRIORITIES: Final[Mapping[str, int]] = {
    "": 18000,
    "extensions": 17900,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "storagemigration.k8s.io": 15800,
    "lifecycle.k8s.io": 15700,
}
"""kube-apiserver's groupPriorityMinimum by group. Groups that are not listed have no APIService."""

_USUAL: Final[Mapping[str, int]] = {"v1": 15, "v1beta2": 9, "v1beta1": 9, "v1alpha1": 1}
VERSION_PRIORITIES: Final[Mapping[tuple[str, str], int]] = {
    ("", "v1"): 1,
    ("extensions", "v1beta1"): 1,
    ("apps", "v1beta1"): 1,
    ("events.k8s.io", "v1beta1"): 5,
    ("authorization.k8s.io", "v1beta1"): 12,
    ("autoscaling", "v2"): 30,
    ("autoscaling", "v2beta2"): 1,
    ("autoscaling", "v2beta1"): 9,
    ("rbac.authorization.k8s.io", "v1beta1"): 12,
    ("rbac.authorization.k8s.io", "v1alpha1"): 9,
    ("admissionregistration.k8s.io", "v1beta1"): 12,
    ("admissionregistration.k8s.io", "v1alpha1"): 9,
    ("scheduling.k8s.io", "v1alpha3"): 3,
    ("discovery.k8s.io", "v1beta1"): 12,
    ("resource.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1beta2"): 15,
    ("resource.k8s.io", "v1alpha3"): 1,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("flowcontrol.apiserver.k8s.io", "v1beta3"): 18,
    ("flowcontrol.apiserver.k8s.io", "v1beta2"): 15,
    ("flowcontrol.apiserver.k8s.io", "v1beta1"): 12,
    ("flowcontrol.apiserver.k8s.io", "v1alpha1"): 9,
}
"""kube-apiserver's versionPriority by group and version, where it differs from _USUAL."""


def wanted(registry: Registry) -> dict[str, Object]:
    """Return the spec of each APIService by name, for every group version the registry serves."""
    specs: dict[str, Object] = {}
    for group, rank in GROUP_PRIORITIES.items():
        for version in registry.versions(group):
            spec: Object = {
                "group": group,
                "version": version,
                "groupPriorityMinimum": rank,
                "versionPriority": VERSION_PRIORITIES.get((group, version)) or _USUAL.get(version, 1),
            }
            if not group:
                del spec["group"]
            specs[f"{version}.{group}"] = spec
    return specs


class APIServices:
    """Writes the APIServices when it starts, and rests afterwards."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = store.registry.builtin(GROUP, "v1", "apiservices")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile until all objects are there, then rest."""
        await first_pass(self.reconcile, subject="the APIServices", task_status=task_status)
        await trio.sleep_forever()

    async def reconcile(self) -> None:
        """Create missing APIServices, repair changed ones, delete those of versions no longer served."""
        await self._store.reads.wait_consistent()
        expected = wanted(self._store.registry)
        steps: list[Pass] = [partial(self._ensure, name, spec) for name, spec in expected.items()]
        for entry in list(self._store.reads.entries(API_SERVICES, "")):
            if entry.key.name not in expected and entry.labels.get(MANAGED) == ON_START:
                steps.append(partial(self._delete, entry.key.name, entry.revision))
        await each(steps)

    async def _ensure(self, name: str, spec: Object) -> None:
        target = Target(rt=self._rt, name=name, manager=MANAGER)
        entry = self._store.reads.peek(API_SERVICES, "", name)
        if entry is None:
            obj = {"metadata": {"name": name, "labels": {MANAGED: ON_START}}, "spec": dict(spec)}
            await create_unless_exists(self._store, COMPONENT, target, obj)
        elif entry.labels.get(MANAGED) == ON_START and entry.object()["spec"] != spec:
            caller = system_caller(COMPONENT, "update", cause=entry.revision)
            await self._store.writes.edit(caller, target, lambda held: {**held, "spec": dict(spec)})

    async def _delete(self, name: str, cause: int) -> None:
        target = Target(rt=self._rt, name=name, manager=MANAGER)
        await delete_if_exists(self._store, COMPONENT, target, DeleteOptions(), cause=cause)
