"""The addresses of Services, for webhooks that are named by their Service: looked up in this replica's views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.http.outgoing.networks import Network, Networks
from kubechronicle.http.outgoing.service_addresses import SERVICE_NAME, ServiceAddresses


def service_addresses(reads: Reads, networks: Networks, *, endpoints_first: bool) -> ServiceAddresses:
    """Return the addresses of Services. ``endpoints_first``: as --enable-aggregator-routing says."""
    proxied = networks.is_proxied(Network.CLUSTER)
    return ServiceAddresses(
        partial(_service, reads), partial(_slices, reads), endpoints_first=endpoints_first, tried=not proxied
    )


def _service(reads: Reads, namespace: str, name: str) -> Mapping[str, Any] | None:
    entry = reads.peek("services", namespace, name)
    return None if entry is None else entry.object()


def _slices(reads: Reads, namespace: str, name: str) -> list[Mapping[str, Any]]:
    entries = reads.entries("endpointslices.discovery.k8s.io", namespace)
    return [entry.object() for entry in entries if entry.labels.get(SERVICE_NAME) == name]
