"""Repair of node ports: every node port of a Service has its object (kube-apiserver's port allocator repair loop).

Both are written in one transaction. They differ only after a change in the database, or if the Service is older than
the allocator. Then:

    port without an object              object created; Event PortNotAllocated
    two Services with one port          the one that the object names keeps it; the other: PortAlreadyAllocated
    port out of the configured range    only reported: PortOutOfRange
    object that no Service uses         deleted by the third pass that finds it so
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import trio

from kubechronicle.actors.allocation.pending_allocations import AllocationOwner
from kubechronicle.actors.allocation.ports import NODE_PORTS, new_port, owner_of_port, port_key
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.services.repair_loop import RepairLoop
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

log = logging.getLogger(__name__)

COMPONENT = "portallocator-repair-controller"
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
        super().__init__(store, COMPONENT)
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
