"""Repair of the addresses and ports of Services."""

from __future__ import annotations

import ipaddress
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import trio

from kubechronicle.actors.admission.chain import AdmissionState
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
from kubechronicle.actors.allocation.pending_allocations import AllocationOwner, RepairMetrics
from kubechronicle.actors.allocation.ports import NODE_PORTS, new_port, owner_of_port, port_key
from kubechronicle.actors.allocation.ranges import Ranges
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.edits import deletion_of
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import repeat_pass
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event

# -- repair loop -------------------------------------------------------------------------------------------------------
#
# RepairLoop: the common part of the loops that repair the addresses and ports of Services.


# Seconds between two passes (kube-apiserver: the repair interval of service addresses).
INTERVAL = 180.0


class RepairLoop(ABC):
    """A pass every INTERVAL seconds. ``ready``: one has succeeded, and the server may be ready."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._recorder = EventRecorder(store, component)
        self.metrics = RepairMetrics()
        self.ready = False

    @abstractmethod
    async def check_all(self) -> None:
        """Check every object, and repair what differs. StatusError, LogError, ActorError."""

    def reflectors(self) -> Iterable[Reflector]:
        """Return the reflectors that call back between two passes, if any."""
        return ()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check until cancelled. Report started after the first attempt."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._check_regularly)
            task_status.started()
            for reflector in self.reflectors():
                nursery.start_soon(reflector.run)

    async def _check_regularly(self, *, task_status: trio.TaskStatus[None]) -> None:
        await repeat_pass(
            self._pass,
            subject=self._component,
            interval=INTERVAL,
            on_error=self.count_failure,
            task_status=task_status,
        )

    async def _pass(self) -> None:
        await self.check_all()
        self.ready = True

    def count_failure(self, _: Exception) -> None:
        """Count a check that failed with an error that is retried."""
        self.metrics.failures += 1

    async def report(self, entry: Entry, error: str, reason: str, message: str, action: str = "") -> None:
        """Count an error and record an Event about the object."""
        self.metrics.errors[error] += 1
        await self._recorder.warn(entry, reason, message, action=action)

    async def commit(self, change: CompanionChange, *, cause: int) -> None:
        """Commit the change unless the object has changed in the meantime; then it is checked again later.

        ``cause``: as in loops/edits.py.
        """
        caller = system_caller(self._component, "update", cause=cause)
        await self._store.writes.commit_own_changes(caller, [change])


# -- cluster ip repair -------------------------------------------------------------------------------------------------
#
# Repair of cluster IPs: every cluster IP of a Service has its IPAddress object, and every such object its Service.
#
# Both are written in one transaction. They differ only after an edit by hand, a restored backup, or if the Service is
# older than the allocator. Then (KEP-1880, kube-apiserver's repair loop):
#
#     Service web 10.96.0.7    no object                          created; Event ClusterIPNotAllocated
#     Service web 10.96.0.7    object refers to something else    changed to refer to it; ClusterIPNotAllocated
#     Service web 10.96.0.7    object refers to Service db,       only reported: ClusterIPAlreadyAllocated
#                              which has 10.96.0.7, too
#     Service web 10.9.9.9     in no ServiceCIDR                  only reported: ClusterIPOutOfRange
#                              object of a deleted Service        deleted after GRACE; IPAddressNotAllocated
#                              object of Service web, which       deleted; IPAddressWrongReference
#                              has another address
#
# All objects are checked before the server is ready and every three minutes, and each one when it changes.


ADDRESSES = "ipallocator-repair-controller"
ACTION, ADDRESS_ACTION = "ClusterIPAllocation", "IPAddressAllocation"
# Age below which an address without a Service is kept: its Service may be about to be created. kube-apiserver takes the
# longest duration of a request.
GRACE = timedelta(seconds=60)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ClusterIPRepair(RepairLoop):
    """``now``: the wall clock, for the age of objects."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _utc_now) -> None:
        super().__init__(store, ADDRESSES)
        self._now = now
        self._state = AdmissionState(peek=store.reads.peek, entries=store.reads.entries)
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
                component=ADDRESSES,
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


# -- node port repair --------------------------------------------------------------------------------------------------
#
# Repair of node ports: every node port of a Service has its object (kube-apiserver's port allocator repair loop).
#
# Both are written in one transaction. They differ only after a change in the database, or if the Service is older than
# the allocator. Then:
#
#     port without an object              object created; Event PortNotAllocated
#     two Services with one port          the one that the object names keeps it; the other: PortAlreadyAllocated
#     port out of the configured range    only reported: PortOutOfRange
#     object that no Service uses         deleted by the third pass that finds it so


log = logging.getLogger(__name__)

PORTS = "portallocator-repair-controller"
# Passes that must find a port leaked before it is freed.
PASSES_UNTIL_FREED = 3


def ports_of(spec: Object) -> list[int]:
    """Return the node ports of a Service, including the one for health checks. A number is listed once for all its
    protocols, and again for each protocol that has it twice, which is an error."""
    numbers: list[int] = []
    seen: dict[int, set[str]] = {}
    ports = [(port.get("nodePort", 0), port.get("protocol", "TCP")) for port in spec.get("ports") or ()]
    for number, protocol in (*ports, (spec.get("healthCheckNodePort", 0), "TCP")):
        if not number:
            continue
        if number not in seen or protocol in seen[number]:
            numbers.append(number)
        seen.setdefault(number, set()).add(protocol)
    return numbers


class NodePortRepair(RepairLoop):
    def __init__(self, store: Store, node_ports: range) -> None:
        super().__init__(store, PORTS)
        self._range = node_ports
        self._leaks: dict[int, int] = {}  # port -> passes that found it leaked

    async def check_all(self) -> None:
        """Check the ports of every Service, then the unused objects. StatusError, LogError, ActorError."""
        await self._store.reads.wait_consistent()
        users: dict[int, list[Entry]] = {}
        async for services in in_turns(self._store.reads.entries("services", "")):
            for entry, number in _used(services):
                users.setdefault(number, []).append(entry)
        held = {int(entry.key.name): entry for entry in self._store.reads.entries(NODE_PORTS, "")}
        for number, services in users.items():
            await trio.lowlevel.checkpoint()
            self._leaks.pop(number, None)
            await self._check_used(number, services, held.pop(number, None))
        self._leaks = {number: passes for number, passes in self._leaks.items() if number in held}
        for number, entry in held.items():
            await self._check_unused(number, entry)

    async def _check_used(self, number: int, services: list[Entry], held: Entry | None) -> None:
        if number not in self._range:
            shown = f"{self._range.start}-{self._range.stop - 1}"
            message = f"Port {number} is not within the port range {shown}; please recreate service"
            for service in services:
                await self.report(service, "outOfRange", "PortOutOfRange", message)
            return
        owner = owner_of_port(held.object()) if held is not None else None
        keeper = next((one for one in services if (one.key.namespace, one.key.name) == owner), services[0])
        keeps = AllocationOwner(keeper.key.namespace, keeper.key.name)
        rest = [one for index, one in enumerate(services) if index != services.index(keeper)]
        for service in rest:
            message = f"Port {number} was assigned to multiple services; please recreate service"
            await self.report(service, "duplicate", "PortAlreadyAllocated", message)
        if owner == keeps:
            return
        if self._store.reads.peek(*keeper.key) is not keeper or self._store.reads.peek(*port_key(number)) is not held:
            return  # changed during this pass; left to the next one
        await self.report(keeper, "repair", "PortNotAllocated", f"Port {number} is not allocated; repairing")
        obj = new_port(number, keeps)
        if held is not None:
            obj["metadata"] = held.object()["metadata"]
            del obj["metadata"]["resourceVersion"]
        await self.commit(CompanionChange(key=port_key(number), old=held, object=obj), cause=keeper.revision)

    async def _check_unused(self, number: int, entry: Entry) -> None:
        passes = self._leaks[number] = self._leaks.get(number, 0) + 1
        if passes < PASSES_UNTIL_FREED:
            log.warning("the node port %d may have leaked: flagging for later clean up", number)
            return
        log.warning("the node port %d appears to have leaked: cleaning up", number)
        self.metrics.errors["leak"] += 1
        del self._leaks[number]
        await self.commit(CompanionChange(key=entry.key, old=entry, object=None), cause=entry.revision)


def _used(services: Sequence[Entry]) -> Iterator[tuple[Entry, int]]:
    for entry in services:
        if b'odePort":' not in entry.json:
            continue  # no node port: saves parsing the object
        for number in ports_of(entry.object()["spec"]):
            yield entry, number
