"""The APIServices of what the server serves by itself, one per group version, made when it starts (kube-aggregator's
autoregistration): local ones, which are always there.

    v1.apps     {group: apps, version: v1, groupPriorityMinimum: 17800, versionPriority: 15}     Available, Local

Which versions are served follows the registry: one that no longer is loses its APIService at the next start. What
becomes of them in between is their owners' business; nothing is put back before that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

COMPONENT = "autoregister"
MANAGER = "kube-apiserver"
API_SERVICES = "apiservices.apiregistration.k8s.io"
GROUP = "apiregistration.k8s.io"
MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
ON_START: Final = "onstart"
START_ATTEMPTS = 10
RETRY_DELAY = 0.5

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
}
"""Where kube-apiserver puts a group among the others; groups that are not listed have no APIService of their own."""

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
    ("certificates.k8s.io", "v1beta1"): 12,
    ("rbac.authorization.k8s.io", "v1beta1"): 12,
    ("rbac.authorization.k8s.io", "v1alpha1"): 9,
    ("admissionregistration.k8s.io", "v1beta1"): 12,
    ("admissionregistration.k8s.io", "v1alpha1"): 9,
    ("scheduling.k8s.io", "v1beta1"): 12,
    ("scheduling.k8s.io", "v1alpha1"): 9,
    ("discovery.k8s.io", "v1beta1"): 12,
    ("resource.k8s.io", "v1"): 20,
    ("resource.k8s.io", "v1beta2"): 15,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("flowcontrol.apiserver.k8s.io", "v1beta3"): 18,
    ("flowcontrol.apiserver.k8s.io", "v1beta2"): 15,
    ("flowcontrol.apiserver.k8s.io", "v1beta1"): 12,
    ("flowcontrol.apiserver.k8s.io", "v1alpha1"): 9,
}
"""Where a version stands within its group, where that is not what most versions of its stage have."""


def wanted(registry: Registry) -> dict[str, Object]:
    """Return the spec of each APIService by name, for every group version the registry serves."""
    found: dict[str, Object] = {}
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
            found[f"{version}.{group}"] = spec
    return found


class APIServices:
    """Makes them when it starts, and has nothing to do afterwards."""

    def __init__(self, store: Store) -> None:
        self._store = store
        rt = store.registry.known(GROUP, "v1", "apiservices")
        assert rt is not None, "apiservices are a built-in resource"
        self._rt = rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Bring them up to date, trying again for a while, report started, and stay."""
        for attempt in range(START_ATTEMPTS):
            try:
                await self.reconcile()
                break
            except (StatusError, LogError, ActorError) as error:
                if attempt == START_ATTEMPTS - 1:
                    raise
                log.warning("APIServices could not be made, trying again: %s", error)
                await trio.sleep(RETRY_DELAY)
        task_status.started()
        await trio.sleep_forever()

    async def reconcile(self) -> None:
        """Make what is missing, mend what is another, delete what is no longer served."""
        await self._store.reads.wait_consistent()
        expected = wanted(self._store.registry)
        for name, spec in expected.items():
            await self._ensure(name, spec)
        for entry in list(self._store.reads.entries(API_SERVICES, "")):
            if entry.key.name not in expected and entry.labels.get(MANAGED) == ON_START:
                await self._delete(entry.key.name)

    async def _ensure(self, name: str, spec: Object) -> None:
        target = Target(rt=self._rt, name=name, manager=MANAGER)
        entry = self._store.reads.peek(API_SERVICES, "", name)
        if entry is None:
            body = {
                "apiVersion": self._rt.api_version,
                "kind": self._rt.kind,
                "metadata": {"name": name, "labels": {MANAGED: ON_START}},
                "spec": dict(spec),
            }
            try:
                await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # otherwise another replica was faster, with the same
                    raise
        elif entry.labels.get(MANAGED) == ON_START and entry.object()["spec"] != spec:
            caller = system_caller(COMPONENT, "update")
            await self._store.writes.edit(caller, target, lambda held: {**held, "spec": dict(spec)})

    async def _delete(self, name: str) -> None:
        target = Target(rt=self._rt, name=name, manager=MANAGER)
        try:
            await self._store.writes.delete(system_caller(COMPONENT, "delete"), target, DeleteOptions())
        except StatusError as error:
            if error.code != 404:
                raise
