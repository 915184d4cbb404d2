"""Services and IPAddress objects agree: every cluster IP has its object, every object the allocator made its Service.

Both are written in one transaction, so they differ only where somebody changed an object by hand, a backup was read in,
or a Service is older than the allocator. Then (KEP-1880, kube-apiserver's repair loop):

    Service web 10.96.0.7    no object                          made; Event ClusterIPNotAllocated
    Service web 10.96.0.7    object refers to something else    made to refer to it; ClusterIPNotAllocated
    Service web 10.96.0.7    object refers to Service db,       only told: ClusterIPAlreadyAllocated
                             which has 10.96.0.7, too
    Service web 10.9.9.9     in no ServiceCIDR                  only told: ClusterIPOutOfRange
                             object of a Service that is gone   deleted after a while; IPAddressNotAllocated
                             object of Service web, which       deleted; IPAddressWrongReference
                             has another address

Everything is looked through before the server is ready and every three minutes, what changes is looked at when it does.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
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
from kubechronicle.actors.allocation.ledger import Owner
from kubechronicle.actors.allocation.metrics import RepairFigures
from kubechronicle.actors.allocation.ranges import Ranges
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.services.repair_loop import keep_checking
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.api.builtin.checks import parse_ip
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "ipallocator-repair-controller"
ACTION, ADDRESS_ACTION = "ClusterIPAllocation", "IPAddressAllocation"
RETRY_INTERVAL = 1.0
# An object is not deleted before it is this old: whoever made it may be about to make its Service (kube-apiserver: the
# longest a request may take).
GRACE = timedelta(seconds=60)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ClusterIPRepair:
    """``now`` is the wall clock, for the age of objects."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._store = store
        self._now = now
        self._state = State(peek=store.reads.peek, entries=store.reads.entries)
        self._ranges = Ranges()
        self._recorder = EventRecorder(store, COMPONENT)
        self.figures = RepairFigures()
        self.ready = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look everything through, report started, then go on looking."""
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_checking, self.check_all, self.figures)
            self.ready = True
            task_status.started()
            nursery.start_soon(self._follow, self._type("", "services"))
            nursery.start_soon(self._follow, self._type("networking.k8s.io", "ipaddresses"))

    def _type(self, group: str, plural: str) -> ResourceType:
        rt = self._store.registry.known(group, "v1", plural)
        assert rt is not None, f"{plural} are a built-in resource"
        return rt

    async def _follow(self, rt: ResourceType) -> None:
        """Check what changes, when it does."""
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                while True:
                    for event in await watching.cursor.next_batch():
                        await self._check_changed(event.entry)
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                self.figures.failures += 1
                log.warning("cluster IPs could not be checked, trying again: %s", error)
                await trio.sleep(RETRY_INTERVAL)

    async def _check_changed(self, entry: Entry) -> None:
        if entry.key.resource != IP_ADDRESSES:
            await self.check_service(entry.key.namespace, entry.key.name)
            return
        await self.check_address(entry.key.name)
        owner = owner_of_address(entry.object())
        if owner is not None and self._state.peek(*entry.key) is None:
            await self.check_service(*owner)

    async def check_all(self) -> None:
        """Every Service, then every address. StatusError, LogError, ActorError."""
        await self._store.reads.wait_consistent()
        for entry in self._state.entries("services", ""):
            await trio.lowlevel.checkpoint()
            await self.check_service(entry.key.namespace, entry.key.name)
        for entry in self._state.entries(IP_ADDRESSES, ""):
            await trio.lowlevel.checkpoint()
            await self.check_address(entry.key.name)

    # -- services -----------------------------------------------------------------------------------------------------

    async def check_service(self, namespace: str, name: str) -> None:
        """Each of its cluster IPs lies in a range and has its object."""
        entry = self._state.peek("services", namespace, name)
        if entry is None:
            return
        for text in addresses_of(entry.object()["spec"]):
            address = parse_ip(text)
            if address is None:
                message = f"Cluster IP {text} is not a valid IP; please recreate Service"
                await self._tell(entry, "invalid", "ClusterIPNotValid", message, "ClusterIPValidation")
            elif not self._in_a_range(address):
                shown = f"Cluster IP [IPv{address.version}]: {address}"
                message = f"{shown} is not within any configured Service CIDR; please recreate service"
                await self._tell(entry, "outOfRange", "ClusterIPOutOfRange", message, ACTION)
            else:
                await self._check_held(entry, str(address))

    def _in_a_range(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        networks = (one.network for one in self._ranges.of(self._state))
        return any(address in one for one in networks if one.version == address.version)

    async def _check_held(self, service: Entry, name: str) -> None:
        """``name`` is given to this Service and no other."""
        owner = Owner(service.key.namespace, service.key.name)
        held = self._state.peek(*address_key(name))
        shown = f"[{'IPv6' if ':' in name else 'IPv4'}]: {name}"
        if held is None:
            message = f"Cluster IP {shown} is not allocated; repairing"
            await self._tell(service, "repair", "ClusterIPNotAllocated", message, ACTION)
            await self._settle(CompanionChange(key=address_key(name), old=None, object=new_address(name, owner)))
            return
        obj = held.object()
        refers = owner_of_address(obj)
        if refers != owner:
            if refers is not None and self._has(refers, name):
                message = f"Cluster IP {shown} was assigned to multiple services; please recreate service"
                await self._tell(service, "duplicate", "ClusterIPAlreadyAllocated", message, ACTION)
                return
            where = f"for Service {owner.namespace}/{owner.name}"
            message = f"the ClusterIP {shown} {where} has a wrong reference; repairing"
            await self._tell(service, "repair", "ClusterIPNotAllocated", message, ACTION)
            await self._settle(CompanionChange(key=held.key, old=held, object=_given_to(obj, name, owner)))
        elif any((obj["metadata"].get("labels") or {}).get(key) != value for key, value in labels_of(name).items()):
            await self._settle(CompanionChange(key=held.key, old=held, object=_given_to(obj, name, owner)))

    def _has(self, owner: Owner, name: str) -> bool:
        entry = self._state.peek("services", *owner)
        if entry is None:
            return False
        return any(str(parse_ip(one)) == name for one in addresses_of(entry.object()["spec"]))

    # -- addresses ----------------------------------------------------------------------------------------------------

    async def check_address(self, name: str) -> None:
        """An address the allocator made belongs to a Service that has it. Those of others are let be."""
        entry = self._state.peek(*address_key(name))
        if entry is None or entry.labels.get(MANAGED_BY) != ALLOCATOR:
            return
        obj = entry.object()
        owner = owner_of_address(obj)
        if owner is None:
            reference = obj["spec"].get("parentRef")
            what = f"appears to have been modified, not referencing a Service {reference}"
            message = f"IPAddress {name} {what}: cleaning up"
            await self._free(entry, "leak", "IPAddressNotAllocated", message)
            return
        where = f"for Service {owner.namespace}/{owner.name}"
        if self._state.peek("services", *owner) is None:
            made = datetime.strptime(obj["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            if self._now() - made > GRACE:
                message = f"IPAddress: {name} {where} appears to have leaked: cleaning up"
                await self._free(entry, "leak", "IPAddressNotAllocated", message)
        elif not self._has(owner, name):
            message = f"IPAddress: {name} {where} has a wrong reference; cleaning up"
            await self._free(entry, "leak", "IPAddressWrongReference", message)

    async def _free(self, entry: Entry, error: str, reason: str, message: str) -> None:
        await self._tell(entry, error, reason, message, ADDRESS_ACTION)
        await self._settle(CompanionChange(key=entry.key, old=entry, object=None))

    async def _tell(self, entry: Entry, error: str, reason: str, message: str, action: str) -> None:
        self.figures.errors[error] += 1
        await self._recorder.warn(entry, reason, message, action=action)

    async def _settle(self, change: CompanionChange) -> None:
        """Refused: somebody else has changed it, and that will be looked at."""
        await self._store.writes.commit_own_changes(system_caller(COMPONENT, "update"), [change])


def _given_to(obj: Object, name: str, owner: Owner) -> Object:
    """The address with the labels and the reference it has to have."""
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    labels = {**(meta.get("labels") or {}), **labels_of(name)}
    reference = {"resource": "services", "namespace": owner.namespace, "name": owner.name}
    return {**obj, "metadata": {**meta, "labels": labels}, "spec": {**obj["spec"], "parentRef": reference}}
