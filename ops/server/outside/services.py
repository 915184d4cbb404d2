"""The addresses of Services, looked up in this replica's views, and those of this server, which nobody may proxy to."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial
from typing import Any

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.http.outgoing.addresses import Judge, Reach
from kubechronicle.http.outgoing.networks import Network, Networks
from kubechronicle.http.outgoing.service_addresses import SERVICE_NAME, ServiceAddresses
from kubechronicle.ops.server.plan import Plan

HTTPS = 443


def judge_of(plan: Plan) -> Judge:
    """Return the judge of addresses: it knows those of this server and of the Service ``kubernetes``."""
    services = [(str(ipaddress.ip_network(one)[1]), HTTPS) for one in plan.services.ranges]
    return Judge(plan.listen.port, [plan.advertised.host_port, *services])


def service_addresses(reads: Reads, networks: Networks, *, endpoints_first: bool) -> ServiceAddresses:
    """Return the addresses of Services. ``endpoints_first``: as --enable-aggregator-routing says."""
    proxied = networks.is_proxied(Network.CLUSTER)
    connect = None if proxied else networks.connect_to(Network.CLUSTER, Reach.ANY)  # a trial sends nothing
    return ServiceAddresses(
        partial(_service, reads), partial(_slices, reads), endpoints_first=endpoints_first, connect=connect
    )


def _service(reads: Reads, namespace: str, name: str) -> Mapping[str, Any] | None:
    entry = reads.peek("services", namespace, name)
    return None if entry is None else entry.object()


def _slices(reads: Reads, namespace: str, name: str) -> list[Mapping[str, Any]]:
    entries = reads.entries("endpointslices.discovery.k8s.io", namespace)
    return [entry.object() for entry in entries if entry.labels.get(SERVICE_NAME) == name]
