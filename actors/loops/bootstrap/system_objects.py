"""What every cluster has from its first second: the system namespaces, the ServiceCIDR ``kubernetes`` that addresses
are given out from, and the Service ``kubernetes`` with this server's address behind it (server_endpoints.py).

Servers on one log share these objects: whoever comes first creates them; a conflict is looked at again, not
overwritten.
"""

from __future__ import annotations

import logging

import trio
from msgspec.structs import replace

from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.conditions import with_condition
from kubechronicle.actors.loops.services.server_endpoints import COMPONENT, SERVICE_NAME, Advertised, ServerEndpoints
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

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
NET = "networking.k8s.io"
RANGES_READY = "Kubernetes default Service CIDR is ready"
# kube-apiserver looks after these objects every ten seconds (EndpointReconcileInterval).
RECONCILE_INTERVAL = 10.0
# The first pass is repeated this often before the server gives up starting.
START_ATTEMPTS = 10
RETRY_DELAY = 0.5


class Bootstrap:
    def __init__(self, store: Store, advertised: Advertised, services: ServiceNetwork) -> None:
        self._store = store
        self._advertised = advertised
        self._services = services
        self._endpoints = ServerEndpoints(store, advertised)
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
        await self._endpoints.reconcile()

    async def withdraw(self) -> None:
        """Take this server's address out of the endpoints for good; called when the server begins to drain."""
        await self._endpoints.withdraw()

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

    # -- writing ------------------------------------------------------------------------------------------------------

    def _type(self, plural: str, group: str) -> ResourceType:
        rt = self._store.registry.known(group, "v1", plural)
        assert rt is not None, f"{plural} is a built-in resource"
        return rt

    async def _ensure(self, plural: str, namespace: str, obj: Object, *, group: str = "") -> None:
        rt = self._type(plural, group)
        name = obj["metadata"]["name"]
        target = Target(rt=rt, namespace=namespace, name=name, manager="kube-apiserver")
        if self._store.reads.peek(rt.resource, namespace, name) is None:
            body = {"apiVersion": rt.api_version, "kind": rt.kind, **obj}
            try:
                await self._store.writes.create(system_caller(COMPONENT, "create"), target, body)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
