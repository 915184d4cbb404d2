"""The control loops for the objects that the server itself needs, and their readiness checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubechronicle.actors.loops.bootstrap.api_services import APIServices
from kubechronicle.actors.loops.bootstrap.authentication_trust import NAME, KeptConfigMap, authentication_trust
from kubechronicle.actors.loops.bootstrap.flow_control import FlowControlBootstrap
from kubechronicle.actors.loops.bootstrap.rbac import RbacBootstrap
from kubechronicle.actors.loops.bootstrap.system_objects import Bootstrap
from kubechronicle.actors.loops.server_endpoints import LEASE_NAMESPACE, LEASES
from kubechronicle.actors.loops.service_account_tokens import CONFIG_MAP, LegacyTokenTracking
from kubechronicle.actors.loops.service_repair import ClusterIPRepair, NodePortRepair
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.eventlog.records import Key
from kubechronicle.http.health import HealthCheck, Unhealthy
from kubechronicle.ops.server.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObjects:
    """Loops that run regardless of --controllers. The server is ready when each has checked all its objects once."""

    bootstrap: Bootstrap
    roles: RbacBootstrap
    api_services: APIServices
    flow_control: FlowControlBootstrap
    cluster_ips: ClusterIPRepair
    node_ports: NodePortRepair
    trust: KeptConfigMap
    legacy_tokens: LegacyTokenTracking

    def children(self) -> list[ChildSpec]:
        return [
            ChildSpec(name="bootstrap", run=self.bootstrap.run),
            ChildSpec(name="api-services", run=self.api_services.run),
            ChildSpec(name="rbac-bootstrap", run=self.roles.run),
            ChildSpec(name="flow-control-bootstrap", run=self.flow_control.run),
            ChildSpec(name="cluster-ip-repair", run=self.cluster_ips.run),
            ChildSpec(name="node-port-repair", run=self.node_ports.run),
            ChildSpec(name="authentication-trust", run=self.trust.run),
            ChildSpec(name="legacy-token-tracking", run=self.legacy_tokens.run),
        ]

    def checks(self) -> list[HealthCheck]:
        """Return readiness checks named after kube-apiserver's post-start hooks."""

        def services() -> None:
            if not (self.cluster_ips.ready and self.node_ports.ready):
                raise Unhealthy("the addresses and ports of Services have not been checked yet")

        def ranges() -> None:
            if not self.bootstrap.has_ranges:
                raise Unhealthy("the ServiceCIDR kubernetes has not been made yet")

        def roles() -> None:
            if not self.roles.done:
                raise Unhealthy("the bootstrap roles have not been checked yet")

        def flow_control() -> None:
            if not self.flow_control.done:
                raise Unhealthy("the bootstrap objects of flow control have not been checked yet")

        def config_map(loop: KeptConfigMap | LegacyTokenTracking, name: str) -> Callable[[], None]:
            def check() -> None:
                if not loop.ready:
                    raise Unhealthy(f"the ConfigMap {name} has not been checked yet")

            return check

        return [
            HealthCheck("poststarthook/start-cluster-authentication-info-controller", config_map(self.trust, NAME)),
            HealthCheck(
                "poststarthook/start-legacy-token-tracking-controller", config_map(self.legacy_tokens, CONFIG_MAP)
            ),
            HealthCheck("poststarthook/start-service-ip-repair-controllers", services),
            HealthCheck("poststarthook/rbac/bootstrap-roles", roles),
            HealthCheck("poststarthook/start-kubernetes-service-cidr-controller", ranges),
            HealthCheck("poststarthook/priority-and-fairness-config-producer", flow_control),
        ]


def own_objects(plan: Plan, store: Store) -> OwnObjects:
    return OwnObjects(
        bootstrap=Bootstrap(
            store,
            plan.advertised,
            plan.services,
            keeps_endpoints=plan.keeps_endpoints,
            node_port=plan.service_node_port,
        ),
        roles=RbacBootstrap(store, plan.features),
        api_services=APIServices(store),
        flow_control=FlowControlBootstrap(store),
        cluster_ips=ClusterIPRepair(store),
        node_ports=NodePortRepair(store, plan.services.node_ports),
        trust=authentication_trust(store, plan.trust),
        legacy_tokens=LegacyTokenTracking(store),
    )


def is_own_lease(key: Key) -> bool:
    """Return True for the Leases by which servers tell that they run."""
    return key.resource == LEASES and key.namespace == LEASE_NAMESPACE and key.name.startswith("apiserver-")
