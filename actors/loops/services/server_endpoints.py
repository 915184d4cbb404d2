"""The endpoints of the Service ``kubernetes``: the addresses of the servers that run, this one's among them.

Each server says that it runs with an identity Lease in kube-system, as kube-apiserver's do (KEP-1965), renewed every
round. Each adds its own address to the endpoints, and takes out those of servers that have not renewed theirs for a
while (kube-apiserver's lease endpoint reconciler, which has a lease of its own for that). One that ends in order takes
its address and Lease along. The processes of one server (--workers) renew one Lease in turn.

How old a renewal is, is counted from when it was seen here: the clocks of two machines may differ. An address without
a Lease has as long to get one.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

COMPONENT = "bootstrap"
SERVICE_NAME = "kubernetes"
DISCOVERY, COORDINATION = "discovery.k8s.io", "coordination.k8s.io"
LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-system"
# kube-apiserver's DefaultEndpointReconcilerTTL: seconds without a renewal after which an address goes.
ADDRESS_TTL = 15.0
# kube-apiserver's IdentityLeaseDurationSeconds, after which the Lease of a server that was killed goes as well.
LEASE_SECONDS = 3600
# Seconds for which a renewal by another process of the same server does for this one, too.
RENEWED_LATELY = timedelta(seconds=3)
IDENTITY_LABEL, IDENTITY = "apiserver.kubernetes.io/identity", "kube-apiserver"
HOSTNAME_LABEL = "kubernetes.io/hostname"
ADDRESS_ANNOTATION = "kubechronicle/advertised"  # on the Lease: where that server is reached

Place = tuple[str, int]
"""An address and a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """Where clients in the cluster reach this server."""

    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """A server that only this machine reaches has no endpoints: none may be in the loopback range."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def address_type(self) -> str:
        return "IPv6" if ipaddress.ip_address(self.address).version == 6 else "IPv4"

    @property
    def place(self) -> Place:
        return self.address, self.port

    @property
    def lease_name(self) -> str:
        """As kube-apiserver makes it of the host's name; here also of the place, as one host may run several."""
        digest = hashlib.sha256(f"{socket.gethostname()} {_written(self.place)}".encode()).digest()[:16]
        return f"apiserver-{base64.b32encode(digest).decode().rstrip('=').lower()}"


class ServerEndpoints:
    """One per process. Every method may raise StatusError, LogError and ActorError, but for `withdraw`."""

    def __init__(self, store: Store, advertised: Advertised) -> None:
        self._store = store
        self._advertised = advertised
        self._holder = f"{advertised.lease_name}_{socket.gethostname()}-{os.getpid()}"
        self._withdrawn = advertised.is_loopback
        # By place: the last renewal, "" for none, and since when it has been known here.
        self._renewals: dict[Place, tuple[str, float]] = {}

    async def reconcile(self) -> None:
        """Renew the Lease, put this server's address where it belongs, take out those of servers that are gone."""
        if self._withdrawn:
            return
        await self._renew()
        gone = self._look()
        addresses = {address for address, _ in gone} - {address for address, _ in self._renewals.keys() - gone}

        def in_endpoints(obj: Object) -> Object:
            return self._without(self._with_address(obj), gone)

        def in_slice(obj: Object) -> Object:
            return _without_endpoints(self._with_endpoint(obj), addresses)

        await self._ensure("endpoints", self._endpoints(), in_endpoints)
        await self._ensure("endpointslices", self._slice(), in_slice, group=DISCOVERY)
        await self._remove_old_leases()

    async def withdraw(self) -> None:
        """Take this server's address out of the endpoints for good; called when the server begins to drain."""
        if self._withdrawn:
            return
        self._withdrawn = True
        own = {self._advertised.place}
        await self._edit("endpoints", "", lambda obj: self._without(obj, own))
        await self._edit("endpointslices", DISCOVERY, lambda obj: _without_endpoints(obj, {self._advertised.address}))
        await self._delete_lease(self._advertised.lease_name)

    # -- leases -------------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        name = self._advertised.lease_name
        entry = self._store.reads.peek(LEASES, LEASE_NAMESPACE, name)
        if entry is not None and self._is_renewed(entry.object()):
            return
        wanted = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        metadata = {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "labels": {IDENTITY_LABEL: IDENTITY, HOSTNAME_LABEL: socket.gethostname()[:63]},
            "annotations": {ADDRESS_ANNOTATION: _written(self._advertised.place)},
        }

        def change(obj: Object) -> Object:
            return {**obj, "spec": {**(obj.get("spec") or {}), **wanted}}

        await self._ensure("leases", {"metadata": metadata, "spec": wanted}, change, group=COORDINATION)

    def _is_renewed(self, lease: Object) -> bool:
        """By another process of this server, a moment ago by the clock they share."""
        if (lease.get("spec") or {}).get("holderIdentity") == self._holder:
            return False
        return timedelta(0) <= _age(lease) < RENEWED_LATELY

    def _leases(self) -> Iterator[tuple[str, Object]]:
        for entry in self._store.reads.entries(LEASES, LEASE_NAMESPACE):
            obj = entry.object()
            if (obj["metadata"].get("labels") or {}).get(IDENTITY_LABEL) == IDENTITY:
                yield entry.key.name, obj

    def _look(self) -> set[Place]:
        """Take in who has renewed and who is in the endpoints; answers whose time is over."""
        now, known = trio.current_time(), dict.fromkeys(self._places_in_endpoints(), "")
        for _, lease in self._leases():
            place = _read((lease["metadata"].get("annotations") or {}).get(ADDRESS_ANNOTATION, ""))
            if place is not None:
                known[place] = (lease.get("spec") or {}).get("renewTime") or ""
        before = self._renewals
        self._renewals = {
            place: before[place] if place in before and before[place][0] == renewal else (renewal, now)
            for place, renewal in known.items()
        }
        own = self._advertised.place
        return {place for place, (_, at) in self._renewals.items() if now - at > ADDRESS_TTL and place != own}

    def _places_in_endpoints(self) -> Iterator[Place]:
        entry = self._store.reads.peek("endpoints", "default", SERVICE_NAME)
        for subset in (entry.object().get("subsets") or []) if entry is not None else []:
            for port in subset.get("ports") or []:
                for one in subset.get("addresses") or []:
                    yield one["ip"], port["port"]

    async def _remove_old_leases(self) -> None:
        for name, lease in list(self._leases()):
            lasts = timedelta(seconds=(lease.get("spec") or {}).get("leaseDurationSeconds") or LEASE_SECONDS)
            if name != self._advertised.lease_name and _age(lease) > lasts:
                await self._delete_lease(name)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _ports(self) -> list[Object]:
        return [{"name": "https", "port": self._advertised.port, "protocol": "TCP"}]

    def _endpoints(self) -> Object:
        return {
            "metadata": {
                "name": SERVICE_NAME,
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{"addresses": [{"ip": self._advertised.address}], "ports": self._ports()}],
        }

    def _slice(self) -> Object:
        return {
            "metadata": {
                "name": SERVICE_NAME,
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": SERVICE_NAME},
            },
            "addressType": self._advertised.address_type,
            "endpoints": [{"addresses": [self._advertised.address], "conditions": {"ready": True}}],
            "ports": self._ports(),
        }

    def _with_address(self, obj: Object) -> Object:
        """One subset per port; ours holds our address."""
        if self._withdrawn:
            return obj
        subsets = [dict(subset) for subset in obj.get("subsets") or []]
        for subset in subsets:
            if subset.get("ports") == self._ports():
                addresses = subset.get("addresses") or []
                if all(one.get("ip") != self._advertised.address for one in addresses):
                    addresses = sorted([*addresses, {"ip": self._advertised.address}], key=lambda one: str(one["ip"]))
                subset["addresses"] = addresses
                break
        else:
            subsets.append({"addresses": [{"ip": self._advertised.address}], "ports": self._ports()})
        return {**obj, "subsets": subsets}

    def _without(self, obj: Object, places: Collection[Place]) -> Object:
        subsets = []
        for subset in obj.get("subsets") or []:
            ports = [port.get("port") for port in subset.get("ports") or []]
            held = subset.get("addresses") or []
            left = [one for one in held if not any((one.get("ip"), port) in places for port in ports)]
            if left or not held:
                subsets.append(subset if len(left) == len(held) else {**subset, "addresses": left})
        return {**obj, "subsets": subsets}

    def _with_endpoint(self, obj: Object) -> Object:
        endpoints = obj.get("endpoints") or []
        if self._withdrawn or any(self._advertised.address in (one.get("addresses") or []) for one in endpoints):
            return obj
        if obj.get("addressType") != self._advertised.address_type:
            return obj  # made by a server of the other family; a slice holds one
        ours = {"addresses": [self._advertised.address], "conditions": {"ready": True}}
        return {**obj, "endpoints": [*endpoints, ours], "ports": obj.get("ports") or self._ports()}

    # -- writing ------------------------------------------------------------------------------------------------------

    def _target(self, plural: str, group: str, namespace: str, name: str) -> Target:
        return Target(rt=self._type(plural, group), namespace=namespace, name=name, manager="kube-apiserver")

    def _type(self, plural: str, group: str) -> ResourceType:
        rt = self._store.registry.known(group, "v1", plural)
        assert rt is not None, f"{plural} is a built-in resource"
        return rt

    async def _ensure(self, plural: str, obj: Object, change: Callable[[Object], Object], *, group: str = "") -> None:
        """``obj`` if there is none, else what ``change`` makes of what there is."""
        metadata = obj["metadata"]
        target = self._target(plural, group, metadata["namespace"], metadata["name"])
        if self._store.reads.peek(target.rt.resource, target.namespace, target.name) is None:
            body = {"apiVersion": target.rt.api_version, "kind": target.rt.kind, **obj}
            try:
                await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
                return
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        await self._store.writes.edit(system_caller(COMPONENT, "update"), target, change)

    async def _edit(self, plural: str, group: str, change: Callable[[Object], Object]) -> None:
        target = self._target(plural, group, "default", SERVICE_NAME)
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, change)
        except (StatusError, LogError, ActorError) as error:
            log.warning("this server's address could not be taken out of %s: %s", plural, error)

    async def _delete_lease(self, name: str) -> None:
        target = self._target("leases", COORDINATION, LEASE_NAMESPACE, name)
        try:
            await self._store.writes.delete(system_caller(COMPONENT, "delete"), target, DeleteOptions())
        except (StatusError, LogError, ActorError) as error:
            log.warning("the lease %s could not be deleted: %s", name, error)


def _without_endpoints(obj: Object, addresses: Collection[str]) -> Object:
    left = [one for one in obj.get("endpoints") or [] if not set(one.get("addresses") or []) & set(addresses)]
    return {**obj, "endpoints": left}


def _age(lease: Object) -> timedelta:
    """How long ago it was renewed, by this machine's clock; negative where the clocks differ."""
    renewed = (lease.get("spec") or {}).get("renewTime")
    if not renewed:
        return timedelta.max
    return datetime.now(UTC) - datetime.fromisoformat(renewed)


def _written(place: Place) -> str:
    address, port = place
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _read(text: str) -> Place | None:
    address, _, port = text.rpartition(":")
    return (address.strip("[]"), int(port)) if address and port.isdecimal() else None
