"""What every cluster has from its first second: the system namespaces, the ServiceCIDR ``kubernetes`` that addresses
are given out from, and the Service ``kubernetes`` with this server's address behind it. The address leaves the
endpoints again when the server stops, as kube-apiserver's does.

Two servers on one log share these objects: each adds and removes its own address only, and whoever comes first creates
them; a conflict is looked at again, not overwritten.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import trio

from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.conditions import with_condition
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writes import Target
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.status import StatusError
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

COMPONENT = "bootstrap"
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# name -> (value, description); kube-apiserver's bootstrap-system-priority-classes.
SYSTEM_PRIORITY_CLASSES = {
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
}
SERVICE_NAME = "kubernetes"
NET = "networking.k8s.io"
RANGES_READY = "Kubernetes default Service CIDR is ready"
# kube-apiserver looks after these objects every ten seconds (EndpointReconcileInterval).
RECONCILE_INTERVAL = 10.0
# The first pass is repeated this often before the server gives up starting.
START_ATTEMPTS = 10
RETRY_DELAY = 0.5

Object = dict[str, Any]


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


class Bootstrap:
    def __init__(self, store: Store, advertised: Advertised, services: ServiceNetwork) -> None:
        self._store = store
        self._advertised = advertised
        self._services = services
        self._withdrawn = False
        self._told_other_ranges = False
        self.has_ranges = False  # the ServiceCIDR is there

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile once, report started, then keep an eye on it."""
        for attempt in range(START_ATTEMPTS):
            try:
                await self.reconcile()
                break
            except (StatusError, LogError, ActorError):
                if attempt == START_ATTEMPTS - 1:
                    raise
                await trio.sleep(RETRY_DELAY)
        task_status.started()
        while True:
            await trio.sleep(RECONCILE_INTERVAL)
            try:
                await self.reconcile()
            except (StatusError, LogError, ActorError) as error:
                log.warning("bootstrap objects could not be looked after, trying again: %s", error)

    async def reconcile(self) -> None:
        """Create what is missing and put this server's address where it belongs."""
        for name in SYSTEM_NAMESPACES:
            await self._ensure("namespaces", "", {"metadata": {"name": name}})
        for name, (value, description) in SYSTEM_PRIORITY_CLASSES.items():
            obj = {"metadata": {"name": name}, "value": value, "description": description}
            await self._ensure("priorityclasses", "", obj, group="scheduling.k8s.io")
        await self._ensure_ranges()
        try:
            await self._ensure("services", "default", self._service())
        except StatusError as error:
            if error.reason not in ("Invalid", "InternalError"):
                raise
            # Its address lies in no ServiceCIDR, or is taken: for the administrator to mend, with this server running.
            log.warning("the Service kubernetes could not be made: %s", error)
        if self._withdrawn or self._advertised.is_loopback:
            return
        await self._ensure("endpoints", "default", self._endpoints(), self._with_address)
        await self._ensure("endpointslices", "default", self._slice(), self._with_endpoint, group="discovery.k8s.io")

    async def withdraw(self) -> None:
        """Take this server's address out of the endpoints for good; called when the server begins to drain."""
        self._withdrawn = True
        if self._advertised.is_loopback:
            return
        await self._edit("endpoints", "", self._without_address)
        await self._edit("endpointslices", "discovery.k8s.io", self._without_endpoint)

    # -- ranges of service addresses ----------------------------------------------------------------------------------

    async def _ensure_ranges(self) -> None:
        """The ServiceCIDR that the settings describe. One that says something else stays, but for a second family: to
        change a range is the administrator's (KEP-1880)."""
        ranges = list(self._services.ranges)
        wanted = {"metadata": {"name": SERVICE_NAME}, "spec": {"cidrs": ranges}}
        await self._ensure("servicecidrs", "", wanted, group=NET)
        rt = self._type("servicecidrs", NET)
        entry = self._store.reads.peek(rt.resource, "", SERVICE_NAME)
        if entry is None:
            return  # it has just been deleted; the next round makes it again
        self.has_ranges = True
        obj = entry.object()
        if obj["metadata"].get("deletionTimestamp"):
            return
        target = Target(rt=rt, name=SERVICE_NAME, manager="kube-apiserver")
        if len(ranges) == 2 and obj["spec"]["cidrs"] == ranges[:1]:
            await self._store.writes.edit(
                system_caller(COMPONENT, "update"), target, lambda held: {**held, "spec": {"cidrs": ranges}}
            )
        elif obj["spec"]["cidrs"] != ranges:
            if not self._told_other_ranges:
                log.warning("the ServiceCIDR kubernetes has %s, not %s", obj["spec"]["cidrs"], ranges)
                self._told_other_ranges = True
            return
        if not any(one.get("type") == "Ready" for one in (obj.get("status") or {}).get("conditions") or ()):
            await self._store.writes.edit(
                system_caller(COMPONENT, "update"),
                replace(target, subresource="status"),
                lambda held: with_condition(held, "Ready", "True", message=RANGES_READY),
            )

    # -- objects ------------------------------------------------------------------------------------------------------

    def _service(self) -> Object:
        address = self._services.first_address
        return {
            "metadata": {
                "name": SERVICE_NAME,
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": address,
                "clusterIPs": [address],
                "ipFamilies": [self._services.families[0]],
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": self._advertised.port}],
            },
        }

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

    # -- this server's address in them --------------------------------------------------------------------------------

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

    def _without_address(self, obj: Object) -> Object:
        subsets = []
        for subset in obj.get("subsets") or []:
            if subset.get("ports") == self._ports():
                left = [one for one in subset.get("addresses") or [] if one.get("ip") != self._advertised.address]
                if not left:
                    continue
                subset = {**subset, "addresses": left}
            subsets.append(subset)
        return {**obj, "subsets": subsets}

    def _with_endpoint(self, obj: Object) -> Object:
        endpoints = obj.get("endpoints") or []
        if self._withdrawn or any(self._advertised.address in (one.get("addresses") or []) for one in endpoints):
            return obj
        ours = {"addresses": [self._advertised.address], "conditions": {"ready": True}}
        return {**obj, "endpoints": [*endpoints, ours], "ports": obj.get("ports") or self._ports()}

    def _without_endpoint(self, obj: Object) -> Object:
        ours = self._advertised.address
        left = [one for one in obj.get("endpoints") or [] if ours not in (one.get("addresses") or [])]
        return {**obj, "endpoints": left}

    # -- writing ------------------------------------------------------------------------------------------------------

    def _type(self, plural: str, group: str) -> ResourceType:
        rt = self._store.registry.known(group, "v1", plural)
        assert rt is not None, f"{plural} is a built-in resource"
        return rt

    async def _ensure(
        self,
        plural: str,
        namespace: str,
        obj: Object,
        change: Callable[[Object], Object] | None = None,
        *,
        group: str = "",
    ) -> None:
        rt = self._type(plural, group)
        name = obj["metadata"]["name"]
        target = Target(rt=rt, namespace=namespace, name=name, manager="kube-apiserver")
        if self._store.reads.peek(rt.resource, namespace, name) is None:
            body = {"apiVersion": rt.api_version, "kind": rt.kind, **obj}
            try:
                await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
                return
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        if change is not None:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, change)

    async def _edit(self, plural: str, group: str, change: Callable[[Object], Object]) -> None:
        rt = self._type(plural, group)
        target = Target(rt=rt, namespace="default", name=SERVICE_NAME, manager="kube-apiserver")
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, change)
        except (StatusError, LogError, ActorError) as error:
            log.warning("this server's address could not be taken out of %s: %s", plural, error)
