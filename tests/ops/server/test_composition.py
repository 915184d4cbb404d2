"""The assembly of the server's parts, where a setting must reach several of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kubechronicle.http.outgoing.networks import Networks
from kubechronicle.ops.server.outside import services

SERVICE = {"spec": {"clusterIP": "127.0.0.1", "ports": [{"port": 443}]}}
SLICE = {"ports": [{"name": "", "port": 8443}], "endpoints": [{"addresses": ["10.1.0.1"]}]}


class Reads:
    """The two reads of Services and their EndpointSlices."""

    def peek(self, resource: str, namespace: str, name: str) -> Any:
        return SimpleNamespace(object=lambda: SERVICE)

    def entries(self, resource: str, namespace: str) -> list[Any]:
        labels = {"kubernetes.io/service-name": "hook"}
        return [SimpleNamespace(object=lambda: SLICE, labels=labels)]


async def test_aggregator_routing_leads_webhooks_to_endpoints() -> None:
    made = services.service_addresses(Reads(), Networks(), endpoints_first=True)  # type: ignore[arg-type]
    assert await made.resolve("n", "hook", 443) == "10.1.0.1:8443"
