"""Services and the objects of node ports agree (kube-apiserver's port allocator repair loop).

Both are written in one transaction, so they differ only where somebody has been at the database, or a Service is older
than the allocator. A port without its object gets it (Event PortNotAllocated). Of two Services with one port the one
the object names keeps it, the other is told (PortAlreadyAllocated), as is one whose port is out of range
(PortOutOfRange). An object nobody has a use for goes when the third pass has found it so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import trio

from kubechronicle.actors.allocation.ledger import Owner
from kubechronicle.actors.allocation.metrics import RepairFigures
from kubechronicle.actors.allocation.ports import NODE_PORTS, new_port, owner_of_port, port_key
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.services.repair_loop import keep_checking
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

log = logging.getLogger(__name__)

COMPONENT = "portallocator-repair-controller"
# Passes that must find a port leaked before it is freed.
PASSES_UNTIL_FREED = 3


def ports_of(spec: Object) -> list[int]:
    """The node ports of a Service, the one for health checks among them. A number stands there once for all its
    protocols, and once more where that is a mistake: twice for one protocol."""
    numbers: list[int] = []
    seen: dict[int, set[str]] = {}
    asked = [(port.get("nodePort", 0), port.get("protocol", "TCP")) for port in spec.get("ports") or ()]
    for number, protocol in (*asked, (spec.get("healthCheckNodePort", 0), "TCP")):
        if not number:
            continue
        if number not in seen or protocol in seen[number]:
            numbers.append(number)
        seen.setdefault(number, set()).add(protocol)
    return numbers


class NodePortRepair:
    def __init__(self, store: Store, node_ports: range) -> None:
        self._store = store
        self._range = node_ports
        self._recorder = EventRecorder(store, COMPONENT)
        self._leaks: dict[int, int] = {}  # port -> passes that found it leaked
        self.figures = RepairFigures()
        self.ready = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look everything through, report started, then again every three minutes."""
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_checking, self.check_all, self.figures)
            self.ready = True
            task_status.started()

    async def check_all(self) -> None:
        """Every Service, then every port that is given to none. StatusError, LogError, ActorError."""
        await self._store.reads.wait_consistent()
        users: dict[int, list[Entry]] = {}
        for entry, number in self._used():
            users.setdefault(number, []).append(entry)
        held = {int(entry.key.name): entry for entry in self._store.reads.entries(NODE_PORTS, "")}
        for number, services in users.items():
            await trio.lowlevel.checkpoint()
            self._leaks.pop(number, None)
            await self._check_used(number, services, held.pop(number, None))
        self._leaks = {number: passes for number, passes in self._leaks.items() if number in held}
        for number, entry in held.items():
            await self._check_unused(number, entry)

    def _used(self) -> Iterator[tuple[Entry, int]]:
        for entry in self._store.reads.entries("services", ""):
            if b'odePort":' not in entry.json:
                continue  # spares taking apart what has no node ports
            for number in ports_of(entry.object()["spec"]):
                yield entry, number

    async def _check_used(self, number: int, services: list[Entry], held: Entry | None) -> None:
        if number not in self._range:
            shown = f"{self._range.start}-{self._range.stop - 1}"
            message = f"Port {number} is not within the port range {shown}; please recreate service"
            for service in services:
                await self._tell(service, "outOfRange", "PortOutOfRange", message)
            return
        owner = owner_of_port(held.object()) if held is not None else None
        keeper = next((one for one in services if (one.key.namespace, one.key.name) == owner), services[0])
        keeps = Owner(keeper.key.namespace, keeper.key.name)
        rest = [one for index, one in enumerate(services) if index != services.index(keeper)]
        for service in rest:
            message = f"Port {number} was assigned to multiple services; please recreate service"
            await self._tell(service, "duplicate", "PortAlreadyAllocated", message)
        if owner == keeps:
            return
        if self._store.reads.peek(*keeper.key) is not keeper or self._store.reads.peek(*port_key(number)) is not held:
            return  # changed while this pass went on; the next one will see
        await self._tell(keeper, "repair", "PortNotAllocated", f"Port {number} is not allocated; repairing")
        obj = new_port(number, keeps)
        if held is not None:
            obj["metadata"] = held.object()["metadata"]
            del obj["metadata"]["resourceVersion"]
        await self._settle(CompanionChange(key=port_key(number), old=held, object=obj))

    async def _check_unused(self, number: int, entry: Entry) -> None:
        passes = self._leaks[number] = self._leaks.get(number, 0) + 1
        if passes < PASSES_UNTIL_FREED:
            log.warning("the node port %d may have leaked: flagging for later clean up", number)
            return
        log.warning("the node port %d appears to have leaked: cleaning up", number)
        self.figures.errors["leak"] += 1
        del self._leaks[number]
        await self._settle(CompanionChange(key=entry.key, old=entry, object=None))

    async def _tell(self, entry: Entry, error: str, reason: str, message: str) -> None:
        self.figures.errors[error] += 1
        await self._recorder.warn(entry, reason, message)

    async def _settle(self, change: CompanionChange) -> None:
        """Refused: somebody else has changed it, and the next pass will look at that."""
        await self._store.writes.commit_own_changes(system_caller(COMPONENT, "update"), [change])
