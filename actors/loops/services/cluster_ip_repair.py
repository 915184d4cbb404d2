"""Repair of cluster IPs: every cluster IP of a Service has its IPAddress object, and every such object its Service.

Both are written in one transaction. They differ only after an edit by hand, a restored backup, or if the Service is
older than the allocator. Then (KEP-1880, kube-apiserver's repair loop):

    Service web 10.96.0.7    no object                          created; Event ClusterIPNotAllocated
    Service web 10.96.0.7    object refers to something else    changed to refer to it; ClusterIPNotAllocated
    Service web 10.96.0.7    object refers to Service db,       only reported: ClusterIPAlreadyAllocated
                             which has 10.96.0.7, too
    Service web 10.9.9.9     in no ServiceCIDR                  only reported: ClusterIPOutOfRange
                             object of a deleted Service        deleted after GRACE; IPAddressNotAllocated
                             object of Service web, which       deleted; IPAddressWrongReference
                             has another address

All objects are checked before the server is ready and every three minutes, and each one when it changes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import trio

from kubechronicle.actors.admission.chain import State
from kubechronicle.actors.allocation.addresses import (
    ALLOCATOR,
    IP_ADDRESSES,
    MANAGED_BY,
    address_key,
    addresses_of,
    labels_of,
    new_address,
    owner_of_address,
)
from kubechronicle.actors.allocation.pending_allocations import AllocationOwner
from kubechronicle.actors.allocation.ranges import Ranges
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.causes import deletion_of
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.services.repair_loop import RepairLoop
from kubechronicle.actors.store import Store
from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event

COMPONENT = "ipallocator-repair-controller"
ACTION, ADDRESS_ACTION = "ClusterIPAllocation", "IPAddressAllocation"
# Age below which an address without a Service is kept: its Service may be about to be created. kube-apiserver takes the
# longest duration of a request.
GRACE = timedelta(seconds=60)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ClusterIPRepair(RepairLoop):
    """``now``: the wall clock, for the age of objects."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _utc_now) -> None:
        super().__init__(store, COMPONENT)
        self._now = now
        self._state = State(peek=store.reads.peek, entries=store.reads.entries)
        self._ranges = Ranges()

    def reflectors(self) -> Iterator[Reflector]:
        registry = self._store.registry
        for rt, on_changes in (
            (registry.builtin("", "v1", "services"), self._check_services),
            (registry.builtin("networking.k8s.io", "v1", "ipaddresses"), self._check_addresses),
        ):
            yield Reflector(
                self._store.reads,
                rt,
                component=COMPONENT,
                on_list=self._await_next_pass,
                on_changes=on_changes,
                on_error=self.count_failure,
            )

    async def _await_next_pass(self) -> None:
        """Leave the listed objects to the next pass."""

    async def _check_services(self, events: Sequence[Event]) -> None:
        for event in events:
            await self.check_service(event.entry.key.namespace, event.entry.key.name)

    async def _check_addresses(self, events: Sequence[Event]) -> None:
        for event in events:
            entry = event.entry
            await self.check_address(entry.key.name)
            owner = owner_of_address(entry.object())
            if owner is not None and self._state.peek(*entry.key) is None:
                await self.check_service(*owner)

    async def check_all(self) -> None:
        """Check every Service, then every address. StatusError, LogError, ActorError."""
        await self._store.reads.wait_consistent()
        for entry in self._state.entries("services", ""):
            await trio.lowlevel.checkpoint()
            await self.check_service(entry.key.namespace, entry.key.name)
        for entry in self._state.entries(IP_ADDRESSES, ""):
            await trio.lowlevel.checkpoint()
            await self.check_address(entry.key.name)

    # -- services -----------------------------------------------------------------------------------------------------

    async def check_service(self, namespace: str, name: str) -> None:
        """Check that each cluster IP of the Service is in a range and has its object."""
        entry = self._state.peek("services", namespace, name)
        if entry is None:
            return
        for text in addresses_of(entry.object()["spec"]):
            address = parse_ip(text)
            if address is None:
                message = f"Cluster IP {text} is not a valid IP; please recreate Service"
                await self.report(entry, "invalid", "ClusterIPNotValid", message, "ClusterIPValidation")
            elif not self._in_a_range(address):
                shown = f"Cluster IP [IPv{address.version}]: {address}"
                message = f"{shown} is not within any configured Service CIDR; please recreate service"
                await self.report(entry, "outOfRange", "ClusterIPOutOfRange", message, ACTION)
            else:
                await self._check_held(entry, str(address))

    def _in_a_range(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        networks = (one.network for one in self._ranges.of(self._state))
        return any(address in one for one in networks if one.version == address.version)

    async def _check_held(self, service: Entry, name: str) -> None:
        """Check that the object of the address ``name`` refers to this Service."""
        owner = AllocationOwner(service.key.namespace, service.key.name)
        held = self._state.peek(*address_key(name))
        shown = f"[{'IPv6' if ':' in name else 'IPv4'}]: {name}"
        if held is None:
            message = f"Cluster IP {shown} is not allocated; repairing"
            await self.report(service, "repair", "ClusterIPNotAllocated", message, ACTION)
            await self.commit(
                CompanionChange(key=address_key(name), old=None, object=new_address(name, owner)),
                cause=service.revision,
            )
            return
        obj = held.object()
        refers = owner_of_address(obj)
        if refers != owner:
            if refers is not None and self._has(refers, name):
                message = f"Cluster IP {shown} was assigned to multiple services; please recreate service"
                await self.report(service, "duplicate", "ClusterIPAlreadyAllocated", message, ACTION)
                return
            where = f"for Service {owner.namespace}/{owner.name}"
            message = f"the ClusterIP {shown} {where} has a wrong reference; repairing"
            await self.report(service, "repair", "ClusterIPNotAllocated", message, ACTION)
            await self.commit(
                CompanionChange(key=held.key, old=held, object=_given_to(obj, name, owner)), cause=service.revision
            )
        elif any((obj["metadata"].get("labels") or {}).get(key) != value for key, value in labels_of(name).items()):
            await self.commit(
                CompanionChange(key=held.key, old=held, object=_given_to(obj, name, owner)), cause=service.revision
            )

    def _has(self, owner: AllocationOwner, name: str) -> bool:
        entry = self._state.peek("services", *owner)
        if entry is None:
            return False
        return any(str(parse_ip(one)) == name for one in addresses_of(entry.object()["spec"]))

    # -- addresses ----------------------------------------------------------------------------------------------------

    async def check_address(self, name: str) -> None:
        """Delete the address unless its Service has it. Addresses not made by the allocator are left alone."""
        entry = self._state.peek(*address_key(name))
        if entry is None or entry.labels.get(MANAGED_BY) != ALLOCATOR:
            return
        obj = entry.object()
        owner = owner_of_address(obj)
        if owner is None:
            reference = obj["spec"].get("parentRef")
            problem = f"appears to have been modified, not referencing a Service {reference}"
            message = f"IPAddress {name} {problem}: cleaning up"
            await self._free(entry, "IPAddressNotAllocated", message, cause=entry.revision)
            return
        where = f"for Service {owner.namespace}/{owner.name}"
        service = self._state.peek("services", *owner)
        if service is None:
            made = datetime.strptime(obj["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            if self._now() - made > GRACE:
                message = f"IPAddress: {name} {where} appears to have leaked: cleaning up"
                gone = deletion_of(self._store.reads, "services", *owner)
                await self._free(entry, "IPAddressNotAllocated", message, cause=gone or entry.revision)
        elif not self._has(owner, name):
            message = f"IPAddress: {name} {where} has a wrong reference; cleaning up"
            await self._free(entry, "IPAddressWrongReference", message, cause=service.revision)

    async def _free(self, entry: Entry, reason: str, message: str, *, cause: int) -> None:
        await self.report(entry, "leak", reason, message, ADDRESS_ACTION)
        await self.commit(CompanionChange(key=entry.key, old=entry, object=None), cause=cause)


def _given_to(obj: Object, name: str, owner: AllocationOwner) -> Object:
    """Return the address with the labels and the reference of its owner."""
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    labels = {**(meta.get("labels") or {}), **labels_of(name)}
    reference = {"resource": "services", "namespace": owner.namespace, "name": owner.name}
    return {**obj, "metadata": {**meta, "labels": labels}, "spec": {**obj["spec"], "parentRef": reference}}
