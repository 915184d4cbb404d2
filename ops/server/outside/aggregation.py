"""Aggregation in a server: the clients of extension API servers, and the loop that checks them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.loops.api_service_availability import ApiServiceAvailability, AvailabilityCounts
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.http.aggregation.backends import Backends, DiscoveryCheck
from kubechronicle.http.aggregation.discovery import Aggregation, RemoteDiscovery
from kubechronicle.http.aggregation.foreign_objects import RemoteObjects
from kubechronicle.http.aggregation.openapi import RemoteOpenApi
from kubechronicle.http.aggregation.proxy import Proxy
from kubechronicle.http.aggregation.routes import Routes
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses
from kubechronicle.ops.server.plan import Plan


def aggregated_servers(
    plan: Plan, store: Store, outgoing: Outgoing, addresses: ServiceAddresses
) -> tuple[Backends, Aggregation]:
    """Return the clients of extension API servers, and the parts that answer requests with them."""
    views = store.reads.views
    certificate, key = plan.proxy_client or (None, None)
    backends = Backends(outgoing, addresses, certificate=certificate, key=key)
    routes = Routes(views)
    openapi = RemoteOpenApi(routes, backends)
    discovery = RemoteDiscovery(routes, backends, views, openapi)
    proxy = Proxy(backends, rejects_redirects=plan.rejects_redirects)
    return backends, Aggregation(routes=routes, proxy=proxy, discovery=discovery, openapi=openapi)


def foreign_objects(store: Store, backends: Backends, aggregation: Aggregation) -> RemoteObjects:
    """Return the objects of extension API servers, for the control loops."""
    return RemoteObjects(aggregation.routes, aggregation.discovery, backends, lambda: store.registry)


class UnavailableMetrics(Collector):
    """The metrics of unavailable APIServices, with kube-aggregator's names."""

    def __init__(self, counts: AvailabilityCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        gauge = GaugeMetricFamily(
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            labels=["name"],
        )
        for name, unavailable in self._counts.unavailable.items():
            gauge.add_metric([name], float(unavailable))
        counter = CounterMetricFamily(
            "aggregator_unavailable_apiservice_total",
            "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
            labels=["name", "reason"],
        )
        for labels, number in self._counts.transitions.items():
            counter.add_metric(labels, number)
        yield from (gauge, counter)


def availability_loop(store: Store, backends: Backends) -> tuple[ChildSpec, Collector]:
    """Return the loop that keeps the conditions of APIServices, and its metrics."""
    counts = AvailabilityCounts()
    loop = ApiServiceAvailability(store, DiscoveryCheck(backends), counts)
    return ChildSpec(name="api-service-availability", run=loop.run), UnavailableMetrics(counts)
