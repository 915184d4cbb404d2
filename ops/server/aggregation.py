"""Aggregation in a server: the clients of extension API servers, and the loop that checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kubechronicle.actors.loops.api_service_availability import (
    SERVICE_LABEL,
    SERVICES,
    SLICES,
    ApiServiceAvailability,
    AvailabilityCounts,
)
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.http.aggregation.aggregation import Aggregation
from kubechronicle.http.aggregation.backends import Backends
from kubechronicle.http.aggregation.checks import DiscoveryCheck
from kubechronicle.http.aggregation.discovery import RemoteDiscovery
from kubechronicle.http.aggregation.proxy import Proxy
from kubechronicle.http.aggregation.routes import Routes
from kubechronicle.http.metrics import Reading
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses
from kubechronicle.ops.server.plan import Plan


def aggregated_servers(plan: Plan, store: Store, outgoing: Outgoing) -> tuple[Backends, Aggregation]:
    """Return the clients of extension API servers, and the parts that answer requests with them."""
    reads = store.reads
    certificate, key = plan.proxy_client or (None, None)

    def find_service(namespace: str, name: str) -> Mapping[str, Any] | None:
        entry = reads.peek(SERVICES, namespace, name)
        return None if entry is None else entry.object()

    def find_slices(namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
        entries = reads.entries(SLICES, namespace)
        return [entry.object() for entry in entries if entry.labels.get(SERVICE_LABEL) == name]

    addresses = ServiceAddresses(find_service, find_slices, endpoints_first=plan.aggregator_routing)
    backends = Backends(outgoing, addresses, certificate=certificate, key=key)
    routes = Routes(reads.views)
    discovery = RemoteDiscovery(routes, backends, reads.views)
    return backends, Aggregation(routes=routes, proxy=Proxy(backends), discovery=discovery)


def availability_loop(store: Store, backends: Backends) -> tuple[ChildSpec, Callable[[], Iterable[Reading]]]:
    """Return the loop that keeps the conditions of APIServices, and its metrics."""
    counts = AvailabilityCounts()
    loop = ApiServiceAvailability(store, DiscoveryCheck(backends), counts)

    def readings() -> Iterable[Reading]:
        yield Reading(
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            False,
            "name",
            {name: float(unavailable) for name, unavailable in counts.unavailable.items()},
        )

    return ChildSpec(name="api-service-availability", run=loop.run), readings
