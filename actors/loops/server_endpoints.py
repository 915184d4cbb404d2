"""The endpoints of the Service ``kubernetes``: the addresses of all running servers.

Each server renews an identity Lease in kube-system with every pass, as kube-apiserver does (KEP-1965). Each adds its
own address to the endpoints. As there, webhooks and policies judge the endpoints, but not what proves that a server
runs, here its Lease. It removes the addresses of servers without a renewal for ADDRESS_TTL; kube-apiserver's
lease endpoint reconciler uses a separate lease for that. A server that shuts down in order removes its address and
Lease. The processes of one server (--workers) renew one Lease in turn.

The age of a renewal counts from the time it was seen here: the clocks of two machines may differ. An address without a
Lease has as long to get one.
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

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.edits import NO_CHANGE, deletion_of
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.targets import Target, new_object
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

log = logging.getLogger(__name__)

COMPONENT = "bootstrap"
SERVICE_NAME = "kubernetes"
DISCOVERY, COORDINATION = "discovery.k8s.io", "coordination.k8s.io"
LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-system"
# kube-apiserver's DefaultEndpointReconcilerTTL: seconds without a renewal after which an address goes.
ADDRESS_TTL = 15.0
# Seconds that a draining server waits for webhooks which are asked about the removal of its address. Without its Lease,
# other servers remove the address.
WITHDRAWAL = 5.0
# kube-apiserver's IdentityLeaseDurationSeconds, after which the Lease of a server that was killed goes as well.
LEASE_SECONDS = 3600
# A renewal by another process of the same server counts for this process as long as this.
RENEWED_LATELY = timedelta(seconds=3)
IDENTITY_LABEL, IDENTITY = "apiserver.kubernetes.io/identity", "kube-apiserver"
HOSTNAME_LABEL = "kubernetes.io/hostname"
ADDRESS_ANNOTATION = "kubechronicle/advertised"  # on the Lease: address and port of that server

HostPort = tuple[str, int]
"""An IP address and a port."""


def server_id(host: str) -> str:
    """Return the id of the API server on a host, as kube-apiserver makes it (NewConfig of k8s.io/apiserver's server):
    a digest of the names of the host and of the program, each after its length in two bytes."""
    names = (host.encode(), b"kube-apiserver")
    digest = hashlib.sha256(b"".join(len(name).to_bytes(2, "big") + name for name in names)).digest()[:16]
    return f"apiserver-{base64.b32encode(digest).decode().rstrip('=').lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """The address under which clients in the cluster reach this server."""

    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True for a server that only this machine reaches. It has no endpoints: they reject loopback addresses."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def address_type(self) -> str:
        return "IPv6" if ipaddress.ip_address(self.address).version == 6 else "IPv4"

    @property
    def host_port(self) -> HostPort:
        return self.address, self.port

    @property
    def lease_name(self) -> str:
        """The id of the server on this host with this address and port: one host may run several servers."""
        return server_id(f"{socket.gethostname()} {_format(self.host_port)}")


class ServerEndpoints:
    """One per process. Every method but `withdraw` may raise StatusError, LogError and ActorError."""

    def __init__(self, store: Store, advertised: Advertised, *, in_endpoints: bool = True) -> None:
        """``in_endpoints``: False: keep the identity Lease only."""
        self._store = store
        self._advertised = advertised
        self._holder = f"{advertised.lease_name}_{socket.gethostname()}-{os.getpid()}"
        self._withdrawn = advertised.is_loopback
        self._in_endpoints = in_endpoints
        # By server: the last renewal ("": none), and the time it was first seen here (trio's clock).
        self._renewals: dict[HostPort, tuple[str, float]] = {}

    async def reconcile(self) -> None:
        """Renew the Lease, add this server's address, remove the addresses of servers that no longer run."""
        if self._withdrawn:
            return
        await self._renew()
        if not self._in_endpoints:
            await self._remove_old_leases()
            return
        expired = self._update_renewals()
        addresses = {address for address, _ in expired} - {address for address, _ in self._renewals.keys() - expired}

        def in_endpoints(obj: Object) -> Object:
            return self._without(self._with_address(obj), expired)

        def in_slice(obj: Object) -> Object:
            return _without_endpoints(self._with_endpoint(obj), addresses)

        await self._ensure("endpoints", self._endpoints(), in_endpoints)
        await self._ensure("endpointslices", self._slice(), in_slice, group=DISCOVERY)
        await self._remove_old_leases()

    async def withdraw(self) -> None:
        """Remove this server's address from the endpoints for good; called when the server starts to drain."""
        if self._withdrawn:
            return
        self._withdrawn = True
        own = {self._advertised.host_port}
        await self._delete_lease(self._advertised.lease_name)
        if not self._in_endpoints:
            return
        with trio.move_on_after(WITHDRAWAL) as limit:
            await self._edit("endpoints", "", lambda obj: self._without(obj, own))
            remove_own = {self._advertised.address}
            await self._edit("endpointslices", DISCOVERY, lambda obj: _without_endpoints(obj, remove_own))
        if limit.cancelled_caught:
            log.warning("this server's address could not be removed within %g s", WITHDRAWAL)

    # -- leases -------------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        name = self._advertised.lease_name
        entry = self._store.reads.peek(LEASES, LEASE_NAMESPACE, name)
        if entry is not None and self._is_renewed(entry.object()):
            return
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        metadata = {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "labels": {IDENTITY_LABEL: IDENTITY, HOSTNAME_LABEL: socket.gethostname()[:63]},
            "annotations": {ADDRESS_ANNOTATION: _format(self._advertised.host_port)},
        }

        if entry is None:
            target = self._target("leases", COORDINATION, LEASE_NAMESPACE, name)
            await self._commit(name, None, new_object(target, {"metadata": metadata, "spec": spec}))
        else:
            held = entry.object()
            del held["metadata"]["resourceVersion"]
            await self._commit(name, entry, {**held, "spec": {**(held.get("spec") or {}), **spec}})

    async def _commit(self, name: str, held: Entry | None, obj: Object | None) -> None:
        """Write or delete a Lease, unless another process has changed it meanwhile. Admission has no say: without a
        renewal, the other servers would take the address of this one out of the endpoints."""
        change = CompanionChange(key=Key(LEASES, LEASE_NAMESPACE, name), old=held, object=obj)
        verb = "delete" if obj is None else "update"
        await self._store.writes.commit_own_changes(system_caller(COMPONENT, verb, cause=NO_CHANGE), [change])

    def _is_renewed(self, lease: Object) -> bool:
        """Return True if another process of this server has renewed the Lease a moment ago, by their common clock."""
        if (lease.get("spec") or {}).get("holderIdentity") == self._holder:
            return False
        return timedelta(0) <= _age(lease) < RENEWED_LATELY

    def _leases(self) -> Iterator[tuple[str, Object]]:
        for entry in self._store.reads.entries(LEASES, LEASE_NAMESPACE):
            obj = entry.object()
            if (obj["metadata"].get("labels") or {}).get(IDENTITY_LABEL) == IDENTITY:
                yield entry.key.name, obj

    def _update_renewals(self) -> set[HostPort]:
        """Read the renewals of all servers with a Lease or in the endpoints. Return the other servers without one for
        ADDRESS_TTL."""
        now, known = trio.current_time(), dict.fromkeys(self._servers_in_endpoints(), "")
        for _, lease in self._leases():
            server = _parse((lease["metadata"].get("annotations") or {}).get(ADDRESS_ANNOTATION, ""))
            if server is not None:
                known[server] = (lease.get("spec") or {}).get("renewTime") or ""
        before = self._renewals
        self._renewals = {
            server: before[server] if server in before and before[server][0] == renewal else (renewal, now)
            for server, renewal in known.items()
        }
        own = self._advertised.host_port
        return {server for server, (_, seen) in self._renewals.items() if now - seen > ADDRESS_TTL and server != own}

    def _servers_in_endpoints(self) -> Iterator[HostPort]:
        entry = self._store.reads.peek("endpoints", "default", SERVICE_NAME)
        for subset in (entry.object().get("subsets") or []) if entry is not None else []:
            for port in subset.get("ports") or []:
                for one in subset.get("addresses") or []:
                    yield one["ip"], port["port"]

    async def _remove_old_leases(self) -> None:
        for name, lease in list(self._leases()):
            duration = timedelta(seconds=(lease.get("spec") or {}).get("leaseDurationSeconds") or LEASE_SECONDS)
            if name != self._advertised.lease_name and _age(lease) > duration:
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
        """Return the Endpoints with this server's address, in the subset of its port."""
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

    def _without(self, obj: Object, servers: Collection[HostPort]) -> Object:
        subsets = []
        for subset in obj.get("subsets") or []:
            ports = [port.get("port") for port in subset.get("ports") or []]
            held = subset.get("addresses") or []
            left = [one for one in held if not any((one.get("ip"), port) in servers for port in ports)]
            if left or not held:
                subsets.append(subset if len(left) == len(held) else {**subset, "addresses": left})
        return {**obj, "subsets": subsets}

    def _with_endpoint(self, obj: Object) -> Object:
        endpoints = obj.get("endpoints") or []
        if self._withdrawn or any(self._advertised.address in (one.get("addresses") or []) for one in endpoints):
            return obj
        if obj.get("addressType") != self._advertised.address_type:
            return obj  # created by a server of the other IP family; a slice holds one family
        ours = {"addresses": [self._advertised.address], "conditions": {"ready": True}}
        return {**obj, "endpoints": [*endpoints, ours], "ports": obj.get("ports") or self._ports()}

    # -- writing ------------------------------------------------------------------------------------------------------

    def _target(self, plural: str, group: str, namespace: str, name: str) -> Target:
        rt = self._store.registry.builtin(group, "v1", plural)
        return Target(rt=rt, namespace=namespace, name=name, manager="kube-apiserver")

    async def _ensure(self, plural: str, obj: Object, change: Callable[[Object], Object], *, group: str = "") -> None:
        """Create ``obj``, or change the existing object."""
        metadata = obj["metadata"]
        target = self._target(plural, group, metadata["namespace"], metadata["name"])
        if self._store.reads.peek(target.rt.resource, target.namespace, target.name) is None:
            body = {"apiVersion": target.rt.api_version, "kind": target.rt.kind, **obj}
            try:
                cause = deletion_of(self._store.reads, target.rt.resource, target.namespace, target.name)
                await self._store.writes.create(system_caller(COMPONENT, "create", cause=cause), target, body)
                return
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        await self._store.writes.edit(system_caller(COMPONENT, "update", cause=NO_CHANGE), target, change)

    async def _edit(self, plural: str, group: str, change: Callable[[Object], Object]) -> None:
        target = self._target(plural, group, "default", SERVICE_NAME)
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update", cause=NO_CHANGE), target, change)
        except RETRIED as error:
            log.warning("this server's address could not be removed from %s: %s", plural, error)

    async def _delete_lease(self, name: str) -> None:
        held = self._store.reads.peek(LEASES, LEASE_NAMESPACE, name)
        if held is None:
            return
        try:
            await self._commit(name, held, None)
        except RETRIED as error:
            log.warning("the lease %s could not be deleted: %s", name, error)


def _without_endpoints(obj: Object, addresses: Collection[str]) -> Object:
    left = [one for one in obj.get("endpoints") or [] if not set(one.get("addresses") or []) & set(addresses)]
    return {**obj, "endpoints": left}


def _age(lease: Object) -> timedelta:
    """Return the time since the renewal, by this machine's clock; negative if the clocks differ."""
    renewed = (lease.get("spec") or {}).get("renewTime")
    if not renewed:
        return timedelta.max
    return datetime.now(UTC) - datetime.fromisoformat(renewed)


def _format(server: HostPort) -> str:
    address, port = server
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _parse(text: str) -> HostPort | None:
    address, _, port = text.rpartition(":")
    return (address.strip("[]"), int(port)) if address and port.isdecimal() else None
