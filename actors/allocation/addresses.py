"""Cluster IPs.

Each allocated address is an IPAddress object (KEP-1880), named after the address and referring to its Service. It is
created and deleted in the Service's transactions. Since the log rejects the creation of an existing object, two
replicas cannot allocate one address, and an IPAddress that a user creates is taken, too.

A dry run only checks the ranges, as kube-apiserver's: any requested address counts as free, and a chosen one is the
range's network address.
"""

from __future__ import annotations

from random import Random
from time import perf_counter
from typing import Final

from kubechronicle.actors.allocation.bands import Address, AddressRange
from kubechronicle.actors.allocation.families import invalid, is_headless, stays_dual_if_possible
from kubechronicle.actors.allocation.pending_allocations import (
    DYNAMIC,
    STATIC,
    AllocationMetrics,
    AllocationOwner,
    PendingAllocations,
)
from kubechronicle.actors.allocation.ranges import Ranges
from kubechronicle.actors.writing.targets import Target, new_object
from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.api.builtin.core.service import needs_address
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.measures import Histogram
from kubechronicle.eventlog.records import Key

IP_ADDRESSES: Final = "ipaddresses.networking.k8s.io"
MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
IP_FAMILY: Final = "ipaddress.kubernetes.io/ip-family"
ALLOCATOR: Final = "ipallocator.k8s.io"
# The field manager of these objects: kube-apiserver's own client.
MANAGER: Final = "kube-apiserver"

FULL = "range is full"
NOT_READY = "allocator not ready"
TAKEN = "provided IP is already allocated"
ELSEWHERE = "the provided network does not match the current range"


class CannotAllocate(Exception):
    """The address cannot be allocated. The message is for the client."""


def address_key(name: str) -> Key:
    return Key(IP_ADDRESSES, "", name)


def owner_of_address(obj: Object) -> AllocationOwner | None:
    """Return the Service an IPAddress refers to."""
    reference = obj["spec"].get("parentRef") or {}
    if reference.get("group") or reference.get("resource") != "services":
        return None
    return AllocationOwner(reference.get("namespace", ""), reference.get("name", ""))


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of an address allocated to a Service."""
    return {IP_FAMILY: "IPv6" if ":" in name else "IPv4", MANAGED_BY: ALLOCATOR}


def new_address(name: str, owner: AllocationOwner) -> Object:
    """Return the stored IPAddress that allocates ``name`` to a Service."""
    rt = builtin_registry().builtin("networking.k8s.io", "v1", "ipaddresses")
    reference = {"resource": "services", "namespace": owner.namespace, "name": owner.name}
    body = {"metadata": {"name": name, "labels": labels_of(name)}, "spec": {"parentRef": reference}}
    return new_object(Target(rt=rt, name=name, manager=MANAGER), body)


def canonical(text: str) -> str:
    """Return the IPAddress name of an address in a Service; the text itself if it is no address."""
    address = parse_ip(text)
    return text if address is None else str(address)


def addresses_of(spec: Object) -> list[str]:
    """Return the cluster IPs allocated to a Service."""
    if not needs_address(spec) or is_headless(spec):
        return []
    return [one for one in spec.get("clusterIPs") or () if one]


class Addresses:
    def __init__(self, random: Random, metrics: AllocationMetrics) -> None:
        self._ranges = Ranges()
        self._random = random
        self._metrics = metrics

    def allocate_new(self, pending: PendingAllocations, spec: Object) -> None:
        """Allocate one address of each family to a Service that had none. StatusError 422, 500."""
        if not needs_address(spec) or is_headless(spec):
            return
        families = spec.get("ipFamilies") or []
        addresses = list(spec.get("clusterIPs") or ())
        addresses += [""] * (len(families) - len(addresses))
        for index, family in enumerate(families):
            addresses[index] = self._allocate(pending, addresses, index, family)
        if addresses:
            spec["clusterIPs"] = addresses
            spec["clusterIP"] = addresses[0]

    def allocate_changes(self, pending: PendingAllocations, spec: Object, held: Object) -> None:
        """Allocate and release the addresses that an update of the type or families requires. StatusError 422, 500."""
        if stays_dual_if_possible(spec, held):
            return
        if not needs_address(held):
            self.allocate_new(pending, spec)
            return
        if is_headless(held):
            return
        before, after = len(held.get("ipFamilies") or ()), len(spec.get("ipFamilies") or ())
        if not needs_address(spec):
            self._release(pending, held.get("clusterIPs") or ())
        elif before == 1 and after == 2:
            addresses = list(spec.get("clusterIPs") or ())
            addresses += [""] * (2 - len(addresses))
            addresses[1] = self._allocate(pending, addresses, 1, spec["ipFamilies"][1])
            spec["clusterIPs"] = addresses
        elif before == 2 and after == 1:
            self._release(pending, (held.get("clusterIPs") or ())[1:])

    def release(self, pending: PendingAllocations, spec: Object) -> None:
        """Release the addresses of a deleted Service."""
        self._release(pending, addresses_of(spec))

    def _release(self, pending: PendingAllocations, addresses: list[str] | tuple[str, ...]) -> None:
        for one in addresses:
            key = address_key(canonical(one))
            entry = pending.state.peek(*key)
            if entry is not None:
                pending.release(key, owner_of_address(entry.object()))

    def _allocate(self, pending: PendingAllocations, addresses: list[str], index: int, family: str) -> str:
        ranges = [one for one in self._ranges.of(pending.state) if one.family == family]
        text = addresses[index]
        if not text:
            try:
                return self._choose(pending, ranges)
            except CannotAllocate as why:
                raise status.internal_error(f"failed to allocate a serviceIP: {why}") from None
            except status.StatusError as error:  # the IPAddress cannot name the Service
                detail = f"failed to allocate IP: {error.message}"
                raise invalid(pending.owner.name, [invalid_value("spec.clusterIPs", addresses, detail)]) from None
        address = parse_ip(text)
        if address is None:
            raise status.internal_error(f'failed to parse service IP "{text}"')
        try:
            self._take(pending, ranges, address)
        except (CannotAllocate, status.StatusError) as why:
            detail = f"failed to allocate IP {text}: {why.message if isinstance(why, status.StatusError) else why}"
            raise invalid(pending.owner.name, [invalid_value("spec.clusterIPs", addresses, detail)]) from None
        return text

    def _take(self, pending: PendingAllocations, ranges: list[AddressRange], address: Address) -> None:
        """Allocate the requested address. CannotAllocate."""
        if pending.dry_run:
            _check_dry_run(ranges, address)
            return
        range_ = next((one for one in ranges if one.ready and address in one), None)
        if range_ is None:
            raise CannotAllocate(ELSEWHERE)
        began, name = perf_counter(), str(address)
        if pending.has(address_key(name)):
            self._metrics.address_errors[str(range_.network), STATIC] += 1
            raise CannotAllocate(TAKEN)
        pending.take(address_key(name), new_address(name, pending.owner))
        self._count(range_, STATIC, began)

    def _choose(self, pending: PendingAllocations, ranges: list[AddressRange]) -> str:
        """Allocate a random free address. CannotAllocate."""
        if pending.dry_run:
            if not ranges or not ranges[0].ready:
                raise CannotAllocate(NOT_READY)
            return str(ranges[0].network.network_address)
        for range_ in self._random.sample(ranges, len(ranges)):
            if not range_.ready:
                continue
            began = perf_counter()
            name = range_.choose(lambda name: pending.has(address_key(name)), self._random)
            if name is not None:
                pending.take(address_key(name), new_address(name, pending.owner))
                self._count(range_, DYNAMIC, began)
                return name
            self._metrics.address_errors[str(range_.network), DYNAMIC] += 1
        raise CannotAllocate(FULL)

    def _count(self, range_: AddressRange, scope: str, began: float) -> None:
        name = str(range_.network)
        self._metrics.addresses[name, scope] += 1
        self._metrics.address_seconds.setdefault((name,), Histogram()).add(perf_counter() - began)


def _check_dry_run(ranges: list[AddressRange], address: Address) -> None:
    if not any(one.ready for one in ranges):
        raise CannotAllocate(NOT_READY)
    if any(one.ready and address in one for one in ranges):
        return
    valid = next(one.network for one in ranges if one.ready)
    raise CannotAllocate(f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {valid}")
