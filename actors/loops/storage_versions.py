"""StorageVersions: the version in which each server stores each resource, under the gate StorageVersionAPI (KEP-2339).

A migrator reads from them whether all servers agree. A server names itself by a Lease in kube-system, after its host as
kube-apiserver does:

    Lease apiserver-wlv32tlt…                     renewed with each pass; gone an hour after the last one
    StorageVersion apps.deployments               one for each built-in resource that is stored
      status.storageVersions: [{apiServerID: apiserver-wlv32tlt…, encodingVersion: apps/v1, …}]
      status.commonEncodingVersion: apps/v1       if all servers have the same one

Leases that have expired are deleted, and entries of servers without one are removed, as storage-version-gc of
kube-controller-manager does. kube-apiserver renews its Lease every 10 seconds. Here each renewal is a revision that is
kept, so there are six an hour. Source: k8s.io/apiserver ``pkg/storageversion``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import trio

from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists, delete_if_exists, edit_if_exists
from kubechronicle.actors.loops.elections import Now, lease_expired, micro_time, utc_now
from kubechronicle.actors.loops.retries import each, repeat_pass
from kubechronicle.actors.loops.server_endpoints import server_id
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.features.gates import EffectiveVersion
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.discovery import stored_as
from kubechronicle.api.registry.lives import version_priority
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject

GATE: Final = "StorageVersionAPI"
COMPONENT: Final = "kube-apiserver"
NAMESPACE: Final = "kube-system"
LABEL: Final = "apiserver.kubernetes.io/identity"
HOST_LABEL: Final = "kubernetes.io/hostname"
LEASE_SECONDS: Final = 3600
INTERVAL: Final = 600.0
AT_ONCE: Final = 16
CONDITION: Final = "AllEncodingVersionsEqual"


# -- decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The versions of a resource that this server stores. ``name``: of its StorageVersion."""

    name: str
    encoding: str
    decodable: tuple[str, ...]
    served: tuple[str, ...]

    def entry(self, server: str) -> Object:
        """Return the entry of a server."""
        return {
            "apiServerID": server,
            "encodingVersion": self.encoding,
            "decodableVersions": list(self.decodable),
            "servedVersions": list(self.served),
        }


def stored_resources(registry: Registry, versions: EffectiveVersion) -> Iterator[Stored]:
    """Yield how this server stores each built-in resource."""
    for rt in registry.stored():
        if rt.custom is None and (served := registry.served_as(rt.resource)):
            first = next((each for each in served if each.resource == _name(each)), served[0])
            known = sorted(registry.known_as(rt.resource), key=partial(_order, group=first.group))
            yield Stored(
                name=f"{first.group or 'core'}.{first.plural}",
                encoding=stored_as(first, versions),
                decodable=tuple(each.api_version for each in known if each.group == first.group or each in served),
                served=tuple(each.api_version for each in served if each.group == first.group),
            )


def _name(rt: ResourceType) -> str:
    return f"{rt.plural}.{rt.group}" if rt.group else rt.plural


def _order(rt: ResourceType, group: str) -> tuple[bool, tuple[int, int, int, str]]:
    return rt.group != group, version_priority(rt.version)


def reported(version: Object, mine: Object | None, servers: Collection[str], now: datetime) -> Object:
    """Return a StorageVersion with this server's entry, and without those of servers that are gone."""
    status = version.get("status") or {}
    kept = [each for each in status.get("storageVersions") or () if each["apiServerID"] in servers]
    if mine is not None:
        at = next((index for index, one in enumerate(kept) if one["apiServerID"] == mine["apiServerID"]), len(kept))
        kept[at : at + 1] = [mine]
    encodings = {each["encodingVersion"] for each in kept}
    common = encodings.pop() if len(encodings) == 1 else None
    condition = _condition(version, common, now)
    others = [each for each in status.get("conditions") or () if each.get("type") != CONDITION]
    made: Object = {"storageVersions": kept, "conditions": [*others, condition]}
    return {**version, "status": made if common is None else {**made, "commonEncodingVersion": common}}


def _condition(version: ReadOnlyObject, common: str | None, now: datetime) -> Object:
    status, state = version.get("status") or {}, "False" if common is None else "True"
    held: Object = next((one for one in status.get("conditions") or () if one.get("type") == CONDITION), {})
    before = status.get("commonEncodingVersion")
    other = held.get("status") != state or (before is not None and common is not None and before != common)
    condition = {
        "type": CONDITION,
        "status": state,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ") if other else held["lastTransitionTime"],
        "reason": "CommonEncodingVersionUnset" if common is None else "CommonEncodingVersionSet",
        "message": "Common encoding version unset" if common is None else "Common encoding version set",
    }
    generation = version["metadata"].get("generation")
    return {**condition, "observedGeneration": generation} if generation else condition


# -- the loop ---------------------------------------------------------------------------------------------------------


class StorageVersionLoop:
    """Reports the stored versions of this server. ``host``: its name."""

    def __init__(self, store: Store, *, host: str, versions: EffectiveVersion, now: Now = utc_now) -> None:
        self._store = store
        self._now = now
        self._host = host
        self._id = server_id(host)
        self._holder = f"{self._id}_{uuid.uuid4()}"
        self._versions = versions
        self._leases = store.registry.builtin("coordination.k8s.io", "v1", "leases")
        self._rt = store.registry.builtin("internal.apiserver.k8s.io", "v1alpha1", "storageversions")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Report every ten minutes until cancelled."""
        await repeat_pass(self._pass, subject="StorageVersions", interval=INTERVAL, task_status=task_status)

    async def _pass(self) -> None:
        now = self._now()
        await self._renew(now)
        servers = set(await self._other_servers(now)) | {self._id}
        mine = {each.name: each for each in stored_resources(self._store.registry, self._versions)}
        known = {entry.key.name for entry in self._store.reads.entries(self._rt.resource, "")}
        steps = [partial(self._report, name, mine.get(name), servers, now) for name in sorted(known | mine.keys())]
        await each(steps, at_once=AT_ONCE)

    async def _renew(self, now: datetime) -> None:
        """Renew the Lease of this server, or create it."""
        labels = {LABEL: COMPONENT, HOST_LABEL: self._host}
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now)}
        target = Target(rt=self._leases, namespace=NAMESPACE, name=self._id, manager=COMPONENT)
        if self._store.reads.peek(self._leases.resource, NAMESPACE, self._id) is None:
            made = {"metadata": {"name": self._id, "namespace": NAMESPACE, "labels": labels}, "spec": spec}
            await create_unless_exists(self._store, COMPONENT, target, made, cause=NO_CHANGE)
            return

        def renewed(found: Object) -> Object:
            meta = {**found["metadata"], "labels": {**(found["metadata"].get("labels") or {}), **labels}}
            return {**found, "metadata": meta, "spec": {**(found.get("spec") or {}), **spec}}

        await edit_if_exists(self._store, COMPONENT, target, renewed, cause=NO_CHANGE)

    async def _other_servers(self, now: datetime) -> Sequence[str]:
        """Return the ids of servers with a Lease. Delete expired ones."""
        found: list[str] = []
        for entry in self._store.reads.entries(self._leases.resource, NAMESPACE):
            lease = entry.object()
            if (lease["metadata"].get("labels") or {}).get(LABEL) != COMPONENT:
                continue
            if not lease_expired(lease, now):
                found.append(entry.key.name)
            elif entry.key.name != self._id:
                target = Target(rt=self._leases, namespace=NAMESPACE, name=entry.key.name, manager=COMPONENT)
                options = DeleteOptions(precondition_resource_version=str(entry.revision))
                await delete_if_exists(self._store, COMPONENT, target, options, cause=NO_CHANGE)
        return found

    async def _report(self, name: str, mine: Stored | None, servers: Collection[str], now: datetime) -> None:
        target = Target(rt=self._rt, name=name, manager=COMPONENT)
        if mine is not None and self._store.reads.peek(self._rt.resource, "", name) is None:
            made = {"metadata": {"name": name}, "spec": {}}
            await create_unless_exists(self._store, COMPONENT, target, made, cause=NO_CHANGE)
        entry = None if mine is None else mine.entry(self._id)
        change = partial(reported, mine=entry, servers=servers, now=now)
        status = Target(rt=self._rt, name=name, subresource="status", manager=COMPONENT)
        await edit_if_exists(self._store, COMPONENT, status, change, cause=NO_CHANGE)
