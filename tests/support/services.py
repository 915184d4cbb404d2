"""For tests of Services: a server with address ranges, bodies, and assertions about allocations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from in_process import InProcess, open_server

from kubechronicle.actors.allocation.addresses import IP_ADDRESSES
from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.store import MemoryStore

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
WEB = f"{SERVICES}/web"
EVENTS = "/api/v1/namespaces/default/events"
SINGLE = ("10.96.0.0/16",)
DUAL = ("10.96.0.0/16", "fd00:96::/112")
PORTS = range(30000, 32768)
MERGE = {"content-type": "application/merge-patch+json"}


@asynccontextmanager
async def open_services(
    *ranges: str, store: RevisionLog | MemoryStore | None = None, node_ports: range = PORTS, **options: Any
) -> AsyncIterator[InProcess]:
    """Open a server without loops, with the ServiceCIDR of its settings."""
    services = ServiceNetwork(ranges=ranges or SINGLE, node_ports=node_ports)
    async with open_server(store, services=services, **options) as server:
        if server.store.reads.peek("servicecidrs.networking.k8s.io", "", "kubernetes") is None:
            await server.post(CIDRS, cidr("kubernetes", *services.ranges))
        yield server


def cidr(name: str, *ranges: str) -> Any:
    return {"metadata": {"name": name}, "spec": {"cidrs": list(ranges)}}


def service(name: str = "web", *, ports: Any = ({"port": 80},), labels: Any = None, **spec: Any) -> Any:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    content = {"spec": {**spec, **({"ports": list(ports)} if ports else {})}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, **content}


def address(name: str, *, resource: str = "services", owner: str = "web", labels: Any = None) -> Any:
    """Return an IPAddress as a user may create it."""
    reference = {"resource": resource, "namespace": "default", "name": owner}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"parentRef": reference}}


def held(server: InProcess) -> dict[str, str]:
    """Return the allocations: "10.96.0.1" or "30080" → the Service's name."""
    entries = server.store.reads.entries
    ips = {one.key.name: one.object()["spec"]["parentRef"]["name"] for one in entries(IP_ADDRESSES, "")}
    return ips | {one.key.name: one.object()["spec"]["service"]["name"] for one in entries(NODE_PORTS, "")}


def has(answer: Any) -> set[str]:
    """Return the addresses and node ports of a Service, in the form of ``held``."""
    spec = answer["spec"]
    numbers = [port.get("nodePort") for port in spec.get("ports") or ()] + [spec.get("healthCheckNodePort")]
    addresses = [one for one in spec.get("clusterIPs") or () if one != "None"]
    return {*addresses, *(str(number) for number in numbers if number)}


def causes(error: Any) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in error["details"]["causes"]]


def holds(server: InProcess, *answers: Any) -> None:
    """Assert that exactly the values of these Services are allocated."""
    expected = {value: answer["metadata"]["name"] for answer in answers for value in has(answer)}
    assert held(server) == expected


async def refused(server: InProcess, method: str, target: str, body: Any, **request: Any) -> list[tuple[str, str]]:
    """Send a request that fails with 422, and return its causes."""
    return causes((await server.ask(method, target, body, **request)).refused(422))
