"""The claimant for Services: what a new one is given, what an update takes and gives back, what a deletion frees."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kubechronicle.actors.admission.chain import CREATE, Attributes, State
from kubechronicle.actors.allocation.addresses import Addresses
from kubechronicle.actors.allocation.families import settle_families
from kubechronicle.actors.allocation.pending_allocations import PendingAllocations, Owner
from kubechronicle.actors.allocation.metrics import AllocationMetrics
from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.allocation.ports import Ports
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.builtin.core.service.strategy import keep_allocated, pair_addresses
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry


class ServiceAllocator:
    """A Claimant. Which of what is free is chosen is left to chance (``random``); the rest follows from the state."""

    resources = frozenset({"services"})

    def __init__(self, network: ServiceNetwork, *, random: Random | None = None) -> None:
        self.metrics = AllocationMetrics()
        self._families = network.families
        chance = random if random is not None else Random()
        self._addresses = Addresses(chance, self.metrics)
        self._ports = Ports(network.node_ports, chance, self.metrics)

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """Give a Service its families, addresses and ports. StatusError 422, 500."""
        obj = attributes.object
        if obj is None:
            return
        name = obj["metadata"].get("name", "")
        pending = PendingAllocations(Owner(attributes.namespace, name), state, attributes.dry_run)
        spec = copy_object(obj["spec"])  # a claim that fails is made again, on what the client asked for
        if attributes.operation == CREATE:
            pair_addresses(spec, None)
            settle_families(name, spec, None, self._families)
            self._addresses.allocate_new(pending, spec)
            self._ports.allocate_new(pending, spec)
        elif attributes.old is not None and not _is_stale(obj["metadata"], attributes.old):
            held = attributes.old.object()["spec"]
            keep_allocated(spec, held)
            pair_addresses(spec, held)
            settle_families(name, spec, held, self._families)
            self._addresses.allocate_changes(pending, spec, held)
            self._ports.allocate_changes(pending, spec, held)
        obj["spec"] = spec
        attributes.companions.extend(pending.companion_changes())

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """Give back all that a Service has; its Endpoints go with it, lest the next of its name begin with them."""
        pending = PendingAllocations(Owner(entry.key.namespace, entry.key.name), state)
        spec = entry.object().get("spec") or {}
        self._addresses.release(pending, spec)
        self._ports.release(pending, spec)
        endpoints = state.peek("endpoints", *pending.owner)
        if endpoints is None or endpoints.object()["metadata"].get("finalizers"):
            return pending.companion_changes()
        return [*pending.companion_changes(), CompanionChange(key=endpoints.key, old=endpoints, object=None)]


def _is_stale(meta: Object, old: Entry) -> bool:
    """Such an update is about to be refused with a conflict, which is told before anything is claimed."""
    given = metadata.parse_revision(meta)
    return bool(given and given != old.revision) or meta.get("uid", old.uid) != old.uid
