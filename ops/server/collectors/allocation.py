"""Metrics of service addresses and node ports, with kube-apiserver's names, read at each request for /metrics.

Values are counted in steps before the metrics are collected (Metrics.count_ahead): there may be 100,000 of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.admission.chain import AdmissionState
from kubechronicle.actors.allocation.addresses import ALLOCATOR, IP_ADDRESSES, MANAGED_BY
from kubechronicle.actors.allocation.bands import AddressRange
from kubechronicle.actors.allocation.pending_allocations import AllocationMetrics, RepairMetrics
from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.allocation.ranges import Ranges, ServiceNetwork
from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.eventlog.measures import histogram_family

IPS, PORTS = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"
STEP: Final = 1000
"""Objects in a step."""


@dataclass(slots=True, eq=False)
class AllocationCollector(Collector):
    metrics: AllocationMetrics
    cluster_ips: RepairMetrics
    node_ports: RepairMetrics
    network: ServiceNetwork
    state: AdmissionState
    _addresses_of: Counter[AddressRange] | None = field(default=None, init=False)
    _ports_in_use: int = field(default=0, init=False)

    def count(self) -> Iterator[None]:
        """Count addresses by range, and ports. An address in two ranges counts in both."""
        ranges = Ranges().of(self.state)
        counts = Counter(dict.fromkeys(ranges, 0))
        by_family = {family: [one for one in ranges if one.family == family] for family in ("IPv4", "IPv6")}
        for number, entry in enumerate(self.state.entries(IP_ADDRESSES, "")):
            if not number % STEP:
                yield
            if entry.labels.get(MANAGED_BY) != ALLOCATOR:
                continue
            name = entry.key.name
            possible = by_family["IPv6" if ":" in name else "IPv4"]
            if len(possible) > 1:  # otherwise there is no need to parse every name
                address = parse_ip(name)
                possible = [one for one in possible if address is not None and address in one]
            counts.update(possible)
        used = 0
        for number, entry in enumerate(self.state.entries(NODE_PORTS, "")):
            if not number % STEP:
                yield
            used += int(entry.key.name) in self.network.node_ports
        self._addresses_of, self._ports_in_use = counts, used

    def collect(self) -> Iterable[Metric]:
        if self._addresses_of is None:
            for _ in self.count():
                pass
        yield from self._addresses()
        yield from self._counted_addresses()
        yield from self._ports()
        yield from self._repairs()

    def _addresses(self) -> Iterable[Metric]:
        """Yield allocated and available addresses by range."""
        allocated = GaugeMetricFamily(
            f"{IPS}_allocated_ips", "Gauge measuring the number of allocated IPs for Services", labels=["cidr"]
        )
        available = GaugeMetricFamily(
            f"{IPS}_available_ips", "Gauge measuring the number of available IPs for Services", labels=["cidr"]
        )
        counted = self._addresses_of or Counter[AddressRange]()
        self._addresses_of = None
        for one, used in counted.items():
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
        text = "Duration in seconds to allocate a Cluster IP by ServiceCIDR"
        yield histogram_family(f"{IPS}_allocation_duration_seconds", text, ["cidr"], self.metrics.address_seconds)

    def _ports(self) -> Iterable[Metric]:
        used = self._ports_in_use
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
