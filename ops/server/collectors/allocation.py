"""Metrics of service addresses and node ports, with kube-apiserver's names, read at each request for /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.admission.chain import State
from kubechronicle.actors.allocation.addresses import ALLOCATOR, IP_ADDRESSES, MANAGED_BY
from kubechronicle.actors.allocation.metrics import BUCKETS, AllocationMetrics, RepairMetrics
from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.allocation.ranges import Ranges
from kubechronicle.api.builtin.common.checks import parse_ip

IPS, PORTS = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"


@dataclass(slots=True, eq=False)
class AllocationCollector(Collector):
    metrics: AllocationMetrics
    cluster_ips: RepairMetrics
    node_ports: RepairMetrics
    network: ServiceNetwork
    state: State

    def collect(self) -> Iterable[Metric]:
        yield from self._addresses()
        yield from self._counted_addresses()
        yield from self._ports()
        yield from self._repairs()

    def _addresses(self) -> Iterable[Metric]:
        """Yield allocated and available addresses by range. An address in two ranges counts in both."""
        allocated = GaugeMetricFamily(
            f"{IPS}_allocated_ips", "Gauge measuring the number of allocated IPs for Services", labels=["cidr"]
        )
        available = GaugeMetricFamily(
            f"{IPS}_available_ips", "Gauge measuring the number of available IPs for Services", labels=["cidr"]
        )
        allocated_names: dict[str, list[str]] = {"IPv4": [], "IPv6": []}
        for entry in self.state.entries(IP_ADDRESSES, ""):
            if entry.labels.get(MANAGED_BY) == ALLOCATOR:
                allocated_names["IPv6" if ":" in entry.key.name else "IPv4"].append(entry.key.name)
        ranges = Ranges().of(self.state)
        for one in ranges:
            names = allocated_names[one.family]
            if sum(other.family == one.family for other in ranges) == 1:
                used = len(names)  # no need to parse every name
            else:
                used = sum(address in one for address in map(parse_ip, names) if address is not None)
            allocated.add_metric([str(one.network)], used)
            available.add_metric([str(one.network)], one.pool.size - used)
        yield allocated
        yield available

    def _counted_addresses(self) -> Iterable[Metric]:
        total = CounterMetricFamily(f"{IPS}_allocation", "Number of Cluster IPs allocations", labels=["cidr", "scope"])
        for (cidr, scope), count in self.metrics.addresses.items():
            total.add_metric([cidr, scope], count)
        yield total
        errors = CounterMetricFamily(
            f"{IPS}_allocation_errors", "Number of errors trying to allocate Cluster IPs", labels=["cidr", "scope"]
        )
        for (cidr, scope), count in self.metrics.address_errors.items():
            errors.add_metric([cidr, scope], count)
        yield errors
        seconds = HistogramMetricFamily(
            f"{IPS}_allocation_duration_seconds",
            "Duration in seconds to allocate a Cluster IP by ServiceCIDR",
            labels=["cidr"],
        )
        for cidr, durations in self.metrics.address_seconds.items():
            bounds = [*map(str, BUCKETS), "+Inf"]
            buckets: list[tuple[str, float]] = list(zip(bounds, accumulate(durations.counts), strict=True))
            seconds.add_metric([cidr], buckets=buckets, sum_value=durations.total)
        yield seconds

    def _ports(self) -> Iterable[Metric]:
        used = sum(int(entry.key.name) in self.network.node_ports for entry in self.state.entries(NODE_PORTS, ""))
        yield GaugeMetricFamily(
            f"{PORTS}_allocated_ports", "Gauge measuring the number of allocated NodePorts for Services", value=used
        )
        yield GaugeMetricFamily(
            f"{PORTS}_available_ports",
            "Gauge measuring the number of available NodePorts for Services",
            value=len(self.network.node_ports) - used,
        )
        total = CounterMetricFamily(f"{PORTS}_allocation", "Number of NodePort allocations", labels=["scope"])
        for scope, count in self.metrics.ports.items():
            total.add_metric([scope], count)
        yield total
        errors = CounterMetricFamily(
            f"{PORTS}_allocation_errors", "Number of errors trying to allocate NodePort", labels=["scope"]
        )
        for scope, count in self.metrics.port_errors.items():
            errors.add_metric([scope], count)
        yield errors

    def _repairs(self) -> Iterable[Metric]:
        for metrics, name, noun in (
            (self.cluster_ips, "clusterip_repair_ip", "clusterips"),
            (self.node_ports, "nodeport_repair_port", "ports"),
        ):
            text = f"Number of errors detected on {noun} by the repair loop broken down by type of error"
            errors = CounterMetricFamily(f"apiserver_{name}_errors", text, labels=["type"])
            for kind, count in metrics.errors.items():
                errors.add_metric([kind], count)
            yield errors
            loop = name.rpartition("_")[0]
            yield CounterMetricFamily(
                f"apiserver_{loop}_reconcile_errors",
                f"Number of reconciliation failures on the {loop.replace('_', ' ')} reconcile loop",
                value=metrics.failures,
            )
