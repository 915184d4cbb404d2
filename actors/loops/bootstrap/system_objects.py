"""The objects every cluster has from its first second:

    the system namespaces and priority classes
    ServiceCIDR ``kubernetes``: the range of service addresses
    Service ``kubernetes``, with this server's address in its endpoints (server_endpoints.py)

Servers on one log share these objects: the first one creates them. After a conflict the object is read again, not
overwritten.
"""

from __future__ import annotations

import logging
from functools import partial

import trio
from msgspec.structs import replace

from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists, with_condition
from kubechronicle.actors.loops.retries import Pass, each, repeat_pass
from kubechronicle.actors.loops.server_endpoints import COMPONENT, SERVICE_NAME, Advertised, ServerEndpoints
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.values.objects import Object

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
# Seconds between two passes (kube-apiserver: EndpointReconcileInterval).
RECONCILE_INTERVAL = 10.0


class Bootstrap:
    def __init__(
        self,
        store: Store,
        advertised: Advertised,
        services: ServiceNetwork,
        *,
        keeps_endpoints: bool = True,
        node_port: int = 0,
    ) -> None:
        """``keeps_endpoints``: keep this server's address in the endpoints. ``node_port``: of a new Service."""
        self._store = store
        self._advertised = advertised
        self._services = services
        self._endpoints = ServerEndpoints(store, advertised, in_endpoints=keeps_endpoints)
        self._node_port = node_port
        self._warned_of_other_ranges = False
        self.has_ranges = False  # the ServiceCIDR exists

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile every RECONCILE_INTERVAL seconds. Report started after the first attempt."""
        await repeat_pass(
            self.reconcile, subject="bootstrap objects", interval=RECONCILE_INTERVAL, task_status=task_status
        )

    async def reconcile(self) -> None:
        """Create missing objects and keep this server's address in the endpoints."""
        steps: list[Pass] = [
            partial(self._ensure, "namespaces", "", {"metadata": {"name": name}}) for name in SYSTEM_NAMESPACES
        ]
        for name, (value, description) in SYSTEM_PRIORITY_CLASSES.items():
            obj = {"metadata": {"name": name}, "value": value, "description": description}
            steps.append(partial(self._ensure, "priorityclasses", "", obj, group="scheduling.k8s.io"))
        service = partial(self._ensure, "services", "default", self._service())
        await each([*steps, self._ensure_ranges, service, self._endpoints.reconcile])

    async def withdraw(self) -> None:
        """Remove this server's address from the endpoints for good; called when the server starts to drain."""
        await self._endpoints.withdraw()

    # -- ranges of service addresses ----------------------------------------------------------------------------------

    async def _ensure_ranges(self) -> None:
        """Ensure the ServiceCIDR of the settings. One with other ranges is kept: only the administrator changes a range
        (KEP-1880). A second family is added."""
        ranges = list(self._services.ranges)
        wanted = {"metadata": {"name": SERVICE_NAME}, "spec": {"cidrs": ranges}}
        await self._ensure("servicecidrs", "", wanted, group=NET)
        rt = self._store.registry.builtin(NET, "v1", "servicecidrs")
        entry = self._store.reads.peek(rt.resource, "", SERVICE_NAME)
        if entry is None:
            return  # just deleted; the next pass creates it again
        self.has_ranges = True
        obj = entry.object()
        if obj["metadata"].get("deletionTimestamp"):
            return
        target = Target(rt=rt, name=SERVICE_NAME, manager="kube-apiserver")
        if len(ranges) == 2 and obj["spec"]["cidrs"] == ranges[:1]:
            await self._store.writes.edit(
                system_caller(COMPONENT, "update", cause=NO_CHANGE),
                target,
                lambda held: {**held, "spec": {"cidrs": ranges}},
            )
        elif obj["spec"]["cidrs"] != ranges:
            if not self._warned_of_other_ranges:
                log.warning("the ServiceCIDR kubernetes has %s, not %s", obj["spec"]["cidrs"], ranges)
                self._warned_of_other_ranges = True
            return
        if not any(one.get("type") == "Ready" for one in (obj.get("status") or {}).get("conditions") or ()):
            await self._store.writes.edit(
                system_caller(COMPONENT, "update", cause=entry.revision),
                replace(target, subresource="status"),
                lambda held: with_condition(held, "Ready", "True", message=RANGES_READY),
            )

    # -- objects ------------------------------------------------------------------------------------------------------

    def _service(self) -> Object:
        address = self._services.first_address
        port: Object = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": self._advertised.port}
        if self._node_port:
            port["nodePort"] = self._node_port
        return {
            "metadata": {
                "name": SERVICE_NAME,
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "type": "NodePort" if self._node_port else "ClusterIP",
                "clusterIP": address,
                "clusterIPs": [address],
                "ipFamilies": [self._services.families[0]],
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [port],
            },
        }

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _ensure(self, plural: str, namespace: str, obj: Object, *, group: str = "") -> None:
        rt = self._store.registry.builtin(group, "v1", plural)
        name = obj["metadata"]["name"]
        target = Target(rt=rt, namespace=namespace, name=name, manager="kube-apiserver")
        if self._store.reads.peek(rt.resource, namespace, name) is None:
            await create_unless_exists(self._store, COMPONENT, target, obj)
