"""The allocator of Services: allocates at creation, allocates and releases at an update, releases at a deletion."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.allocation.addresses import Addresses
from kubechronicle.actors.allocation.families import complete_families
from kubechronicle.actors.allocation.pending_allocations import AllocationMetrics, AllocationOwner, PendingAllocations
from kubechronicle.actors.allocation.ports import Ports
from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.builtin.core.service import keep_allocated, pair_addresses
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry


class ServiceAllocator:
    """A StorageHook. ``random`` chooses among free values; everything else is determined by the state.

    ``strict``: the rules of addresses under StrictIPCIDRValidation.
    The choice depends on the seed of the write, so that webhooks see the same one in all attempts.
    """

    resources = frozenset({"services"})

    def __init__(self, network: ServiceNetwork, *, random: Random | None = None, strict: bool = True) -> None:
        self.metrics = AllocationMetrics()
        self._families = network.families
        self._strict = strict
        self._random = random if random is not None else Random()
        self._seeded = random is None
        random = self._random
        self._addresses = Addresses(random, self.metrics)
        self._ports = Ports(network.node_ports, random, self.metrics)

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Allocate a Service's families, addresses and ports. StatusError 422, 500."""
        obj = attributes.object
        if obj is None:
            return
        name = obj["metadata"].get("name", "")
        pending = PendingAllocations(AllocationOwner(attributes.namespace, name), state, attributes.dry_run)
        spec = copy_object(obj["spec"])  # a failed attempt is repeated on the client's object
        if attributes.seed and self._seeded:
            self._random.seed(attributes.seed)
        if attributes.operation == CREATE:
            pair_addresses(spec, None)
            complete_families(name, spec, None, self._families, strict=self._strict)
            self._addresses.allocate_new(pending, spec)
            self._ports.allocate_new(pending, spec)
        elif attributes.old is not None and not _is_stale(obj["metadata"], attributes.old):
            held = attributes.old.object()["spec"]
            keep_allocated(spec, held)
            pair_addresses(spec, held)
            complete_families(name, spec, held, self._families, strict=self._strict)
            self._addresses.allocate_changes(pending, spec, held)
            self._ports.allocate_changes(pending, spec, held)
        obj["spec"] = spec
        attributes.companions.extend(pending.companion_changes())

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Release a Service's allocations, and delete its Endpoints: a new Service must not inherit them."""
        pending = PendingAllocations(AllocationOwner(entry.key.namespace, entry.key.name), state)
        spec = entry.object().get("spec") or {}
        self._addresses.release(pending, spec)
        self._ports.release(pending, spec)
        endpoints = state.peek("endpoints", *pending.owner)
        if endpoints is None or endpoints.object()["metadata"].get("finalizers"):
            return pending.companion_changes()
        return [*pending.companion_changes(), CompanionChange(key=endpoints.key, old=endpoints, object=None)]


def _is_stale(meta: Object, old: Entry) -> bool:
    """Return True for an update that will be rejected with a conflict, which precedes errors of allocation."""
    revision = metadata.parse_revision(meta)
    return bool(revision and revision != old.revision)
