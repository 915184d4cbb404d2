"""Node ports. Kubernetes has no object for them, only a bitmap; here each that is given out is one small object in the
log, under a resource nobody is served, named after the number. It is made and deleted in the transaction in which the
Service is changed, so that two replicas can't give out one port: the log refuses the second.

One number may stand at several ports of one Service (TCP and UDP of DNS); it is taken once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from kubechronicle.actors.allocation.bands import port_pool
from kubechronicle.actors.allocation.families import invalid
from kubechronicle.actors.allocation.pending_allocations import PendingAllocations, Owner
from kubechronicle.actors.allocation.metrics import DYNAMIC, STATIC, AllocationMetrics
from kubechronicle.api.builtin.core.service.strategy import needs_health_check, needs_node_ports
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.records import Key

NODE_PORTS: Final = "nodeports.kubechronicle"
# A dry run gets numbers above this instead of free ones.
DUMMY: Final = 32768

FULL = "range is full"
TAKEN = "provided port is already allocated"


class PortRefused(Exception):
    """Why not, as the client is told."""


def port_key(number: int) -> Key:
    return Key(NODE_PORTS, "", str(number))


def owner_of_port(obj: Object) -> Owner | None:
    """The Service a node port was given to."""
    service = (obj.get("spec") or {}).get("service") or {}
    return Owner(service.get("namespace", ""), service.get("name", ""))


def new_port(number: int, owner: Owner) -> Object:
    """The object that gives a node port to a Service, as it is stored."""
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
    """The node ports of a Service, as often as they stand there."""
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]


def wants_numbers(spec: Object) -> bool:
    """Whether ports that ask for no number are to get one."""
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


class Ports:
    def __init__(self, ports: range, random: Random, metrics: AllocationMetrics) -> None:
        self._pool = port_pool(ports)
        self._shown = f"{ports.start}-{ports.stop - 1}"
        self._random = random
        self._metrics = metrics

    def allocate_new(self, pending: PendingAllocations, spec: Object) -> None:
        """Give a new Service its node ports, and the one for health checks. 422, 500."""
        if needs_node_ports(spec):
            _NewPorts(self, pending, spec).claim()
        if needs_health_check(spec):
            self._claim_health_check(pending, spec)

    def allocate_changes(self, pending: PendingAllocations, spec: Object, held: Object) -> None:
        """An update: take what is new, give back what is gone."""
        if needs_node_ports(spec):
            self._claim_changed(pending, spec, held)
        elif needs_node_ports(held):
            self._release(pending, numbers_of(held))
        if needs_health_check(spec) and not needs_health_check(held):
            self._claim_health_check(pending, spec)
        elif needs_health_check(held) and not needs_health_check(spec):
            self._release(pending, [held.get("healthCheckNodePort", 0)])

    def release(self, pending: PendingAllocations, spec: Object) -> None:
        """Give back what a Service that goes had."""
        self._release(pending, numbers_of(spec))
        if needs_health_check(spec):
            self._release(pending, [spec.get("healthCheckNodePort", 0)])

    def take(self, pending: PendingAllocations, number: int) -> None:
        """Take the number that was asked for. PortRefused."""
        if pending.dry_run:
            if port_key(number) in pending.taken or (number in self._pool and pending.has(port_key(number))):
                raise PortRefused(TAKEN)
            pending.take(port_key(number), {})
            return
        if number not in self._pool:
            self._metrics.port_errors[STATIC] += 1
            valid = f"The range of valid ports is {self._shown}"
            raise PortRefused(f"provided port is not in the valid range. {valid}")
        if pending.has(port_key(number)):
            self._metrics.port_errors[STATIC] += 1
            raise PortRefused(TAKEN)
        pending.take(port_key(number), new_port(number, pending.owner))
        self._metrics.ports[STATIC] += 1

    def choose(self, pending: PendingAllocations) -> int:
        """Take any number that is free. PortRefused."""
        if pending.dry_run:
            number = max((int(key.name) for key in pending.taken if key.resource == NODE_PORTS), default=DUMMY) + 1
            pending.take(port_key(number), {})
            return number
        found = self._pool.choose(lambda number: pending.has(port_key(number)), self._random)
        if found is None:
            self._metrics.port_errors[DYNAMIC] += 1
            raise PortRefused(FULL)
        pending.take(port_key(found), new_port(found, pending.owner))
        self._metrics.ports[DYNAMIC] += 1
        return found

    def take_for(self, pending: PendingAllocations, index: int, number: int) -> None:
        """Take the number that the port at ``index`` asks for. 422."""
        try:
            self.take(pending, number)
        except PortRefused as why:
            raise invalid(
                pending.owner.name, [invalid_value(f"spec.ports[{index}].nodePort", number, str(why))]
            ) from None

    def choose_for(self, pending: PendingAllocations) -> int:
        """Take any number. 500."""
        try:
            return self.choose(pending)
        except PortRefused as why:
            raise status.internal_error(f"failed to allocate a nodePort: {why}") from None

    def _claim_changed(self, pending: PendingAllocations, spec: Object, held: Object) -> None:
        # A number at a port of another type of Service was never given to it.
        known, fresh = numbers_of(held) if needs_node_ports(held) else [], set[int]()
        seen: set[tuple[Any, int]] = set()
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort", 0)
            if number and number not in known and number not in fresh:
                self.take_for(pending, index, number)
                fresh.add(number)
            elif not number:
                if not wants_numbers(spec):
                    continue
                number = port["nodePort"] = self.choose_for(pending)
            if (port.get("protocol"), number) in seen:
                raise status.unknown(f"duplicate nodePort: {{{port.get('protocol')} {number}}}")
            seen.add((port.get("protocol"), number))
        left = numbers_of(spec)
        self._release(pending, [number for number in known if number not in left])

    def _claim_health_check(self, pending: PendingAllocations, spec: Object) -> None:
        number = spec.get("healthCheckNodePort", 0)
        try:
            if number:
                self.take(pending, number)
            else:
                spec["healthCheckNodePort"] = self.choose(pending)
        except PortRefused as why:
            what = f"requested HealthCheck NodePort {number}" if number else "a HealthCheck NodePort 0"
            raise status.internal_error(f"failed to allocate {what}: {why}") from None

    def _release(self, pending: PendingAllocations, numbers: Iterable[int]) -> None:
        for number in numbers:
            entry = pending.state.peek(*port_key(number)) if number else None
            if entry is not None:
                pending.release(port_key(number), owner_of_port(entry.object()))


class _NewPorts:
    """The node ports of a new Service: ports with the same number in the cluster share one on the nodes."""

    def __init__(self, ports: Ports, pending: PendingAllocations, spec: Object) -> None:
        self._ports = ports
        self._ledger = pending
        self._spec = spec
        self._given: dict[int, int] = {}  # port -> node port

    def claim(self) -> None:
        listed: Sequence[Object] = self._spec.get("ports") or ()
        for index, port in enumerate(listed):
            asked, number = port.get("nodePort", 0), port.get("port", 0)
            if not asked and not wants_numbers(self._spec):
                continue
            given = self._given.get(number, 0)
            if not given:
                same = (one.get("nodePort", 0) for one in listed if one.get("port") == number)
                wanted = next(filter(None, same), 0)
                if wanted:
                    self._ports.take_for(self._ledger, index, wanted)
                else:
                    wanted = self._ports.choose_for(self._ledger)
                port["nodePort"] = self._given[number] = wanted
            elif not asked:
                port["nodePort"] = given
            elif asked != given:
                self._ports.take_for(self._ledger, index, asked)
