"""Node ports.

Kubernetes has no object for them, only a bitmap. Here each allocated port is a small object in the log, under a
resource that is not served, named after its number. It is created and deleted in the Service's transactions, so two
replicas cannot allocate one port: the log rejects the second.

Several ports of one Service may have the same number (TCP and UDP of DNS). It is allocated once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from kubechronicle.actors.allocation.bands import port_pool
from kubechronicle.actors.allocation.families import invalid
from kubechronicle.actors.allocation.pending_allocations import (
    DYNAMIC,
    STATIC,
    AllocationMetrics,
    AllocationOwner,
    PendingAllocations,
)
from kubechronicle.api.builtin.core.service import needs_health_check, needs_node_ports, needs_numbers
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.records import Key

NODE_PORTS: Final = "nodeports.kubechronicle"
# A dry run chooses numbers above this instead of free ones.
DUMMY: Final = 32768
# Ports of one Service that are drawn one by one. A draw from a range that is nearly full takes milliseconds.
FEW: Final = 16

FULL = "range is full"
TAKEN = "provided port is already allocated"


class CannotAllocatePort(Exception):
    """The port cannot be allocated. The message is for the client."""


def port_key(number: int) -> Key:
    return Key(NODE_PORTS, "", str(number))


def owner_of_port(obj: Object) -> AllocationOwner | None:
    """Return the Service that holds a node port."""
    service = (obj.get("spec") or {}).get("service") or {}
    return AllocationOwner(service.get("namespace", ""), service.get("name", ""))


def new_port(number: int, owner: AllocationOwner) -> Object:
    """Return the stored object that allocates a node port to a Service."""
    return {
        "apiVersion": "kubechronicle/v1",
        "kind": "NodePort",
        "metadata": {
            "name": str(number),
            "uid": str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "spec": {"service": {"namespace": owner.namespace, "name": owner.name}},
    }


def numbers_of(spec: Object) -> list[int]:
    """Return the node ports of a Service, duplicates included."""
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]


class Ports:
    def __init__(self, ports: range, random: Random, metrics: AllocationMetrics) -> None:
        self._pool = port_pool(ports)
        self._shown = f"{ports.start}-{ports.stop - 1}"
        self._random = random
        self._metrics = metrics

    def allocate_new(self, pending: PendingAllocations, spec: Object) -> None:
        """Allocate the node ports of a new Service, and the one for health checks. StatusError 422, 500."""
        if needs_node_ports(spec):
            _NewPorts(self, pending, spec).allocate()
        if needs_health_check(spec):
            self._allocate_health_check(pending, spec)

    def allocate_changes(self, pending: PendingAllocations, spec: Object, held: Object) -> None:
        """Allocate the new ports of an update and release the removed ones. StatusError 422, 500."""
        if needs_node_ports(spec):
            self._allocate_changed(pending, spec, held)
        elif needs_node_ports(held):
            self._release(pending, numbers_of(held))
        if needs_health_check(spec) and not needs_health_check(held):
            self._allocate_health_check(pending, spec)
        elif needs_health_check(held) and not needs_health_check(spec):
            self._release(pending, [held.get("healthCheckNodePort", 0)])

    def release(self, pending: PendingAllocations, spec: Object) -> None:
        """Release the ports of a deleted Service."""
        self._release(pending, numbers_of(spec))
        if needs_health_check(spec):
            self._release(pending, [spec.get("healthCheckNodePort", 0)])

    def take(self, pending: PendingAllocations, number: int) -> None:
        """Allocate the requested number. CannotAllocate."""
        if pending.dry_run:
            if port_key(number) in pending.taken or (number in self._pool and pending.has(port_key(number))):
                raise CannotAllocatePort(TAKEN)
            self._take_dummy(pending, number)
            return
        if number not in self._pool:
            self._metrics.port_errors[STATIC] += 1
            valid = f"The range of valid ports is {self._shown}"
            raise CannotAllocatePort(f"provided port is not in the valid range. {valid}")
        if pending.has(port_key(number)):
            self._metrics.port_errors[STATIC] += 1
            raise CannotAllocatePort(TAKEN)
        pending.take(port_key(number), new_port(number, pending.owner))
        self._metrics.ports[STATIC] += 1

    def choose(self, pending: PendingAllocations) -> int:
        """Allocate a random free number. CannotAllocate."""
        if pending.dry_run:
            number = (pending.dummy or DUMMY) + 1
            self._take_dummy(pending, number)
            return number
        chosen = self._free_number(pending)
        if chosen is None:
            self._metrics.port_errors[DYNAMIC] += 1
            raise CannotAllocatePort(FULL)
        pending.take(port_key(chosen), new_port(chosen, pending.owner))
        self._metrics.ports[DYNAMIC] += 1
        return chosen

    def _free_number(self, pending: PendingAllocations) -> int | None:
        """Return a random free number; None: all are taken. One search of the range serves many ports of a Service."""

        def taken(number: int) -> bool:
            return pending.has(port_key(number))

        pending.chosen += 1
        if pending.chosen <= FEW:
            return self._pool.choose(taken, self._random)
        if pending.free is None:
            pending.free = self._pool.free(taken, self._random)
        while pending.free:
            number = pending.free.pop()
            if not taken(number):
                return number
        return None

    def _take_dummy(self, pending: PendingAllocations, number: int) -> None:
        pending.take(port_key(number), {})
        pending.dummy = max(pending.dummy, number)

    def take_for(self, pending: PendingAllocations, index: int, number: int) -> None:
        """Allocate the number requested by the port at ``index``. StatusError 422."""
        try:
            self.take(pending, number)
        except CannotAllocatePort as why:
            raise invalid(
                pending.owner.name, [invalid_value(f"spec.ports[{index}].nodePort", number, str(why))]
            ) from None

    def choose_for(self, pending: PendingAllocations) -> int:
        """Allocate a random free number. StatusError 500."""
        try:
            return self.choose(pending)
        except CannotAllocatePort as why:
            raise status.internal_error(f"failed to allocate a nodePort: {why}") from None

    def _allocate_changed(self, pending: PendingAllocations, spec: Object, held: Object) -> None:
        # A number at a port of another type of Service was never allocated.
        before = numbers_of(held) if needs_node_ports(held) else []
        known, fresh = set(before), set[int]()
        seen: set[tuple[Any, int]] = set()
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort", 0)
            if number and number not in known and number not in fresh:
                self.take_for(pending, index, number)
                fresh.add(number)
            elif not number:
                if not needs_numbers(spec):
                    continue
                number = port["nodePort"] = self.choose_for(pending)
            if (port.get("protocol"), number) in seen:
                raise status.unknown(f"duplicate nodePort: {{{port.get('protocol')} {number}}}")
            seen.add((port.get("protocol"), number))
        left = set(numbers_of(spec))
        self._release(pending, [number for number in before if number not in left])

    def _allocate_health_check(self, pending: PendingAllocations, spec: Object) -> None:
        number = spec.get("healthCheckNodePort", 0)
        try:
            if number:
                self.take(pending, number)
            else:
                spec["healthCheckNodePort"] = self.choose(pending)
        except CannotAllocatePort as why:
            port = f"requested HealthCheck NodePort {number}" if number else "a HealthCheck NodePort 0"
            raise status.internal_error(f"failed to allocate {port}: {why}") from None

    def _release(self, pending: PendingAllocations, numbers: Iterable[int]) -> None:
        for number in numbers:
            entry = pending.state.peek(*port_key(number)) if number else None
            if entry is not None:
                pending.release(port_key(number), owner_of_port(entry.object()))


class _NewPorts:
    """Allocate the node ports of a new Service. Ports with the same cluster port share a node port."""

    def __init__(self, ports: Ports, pending: PendingAllocations, spec: Object) -> None:
        self._ports = ports
        self._pending = pending
        self._spec = spec
        self._node_ports: dict[int, int] = {}  # port → node port

    def allocate(self) -> None:
        listed: Sequence[Object] = self._spec.get("ports") or ()
        requests: dict[int, int] = {}  # port → the first node port requested for it
        for port in listed:
            if port.get("nodePort"):
                requests.setdefault(port.get("port", 0), port["nodePort"])
        for index, port in enumerate(listed):
            requested, number = port.get("nodePort", 0), port.get("port", 0)
            if not requested and not needs_numbers(self._spec):
                continue
            shared = self._node_ports.get(number, 0)
            if not shared:
                wanted = requests.get(number, 0)
                if wanted:
                    self._ports.take_for(self._pending, index, wanted)
                else:
                    wanted = self._ports.choose_for(self._pending)
                port["nodePort"] = self._node_ports[number] = wanted
            elif not requested:
                port["nodePort"] = shared
            elif requested != shared:
                self._ports.take_for(self._pending, index, requested)
