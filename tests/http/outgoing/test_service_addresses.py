"""Addresses of Services: cluster IPs, external names and endpoints, and the choice among them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kubechronicle.http.outgoing.service_addresses import ServiceAddresses, cluster_address, endpoint_addresses

PORTS = [{"name": "https", "port": 443, "targetPort": "web"}]


def piece(*endpoints: dict[str, Any], port: int = 8443, name: str = "https", family: str = "IPv4") -> dict[str, Any]:
    return {"addressType": family, "ports": [{"name": name, "port": port}], "endpoints": list(endpoints)}


def at(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address, "10.9.9.9"], "conditions": conditions}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"clusterIP": "10.0.0.1", "ports": [{"port": 443}]}, "10.0.0.1:443"),
        ({"type": "NodePort", "clusterIP": "fd00::1", "ports": [{"port": 443}]}, "[fd00::1]:443"),
        ({"type": "ExternalName", "externalName": "a.example.com"}, "a.example.com:443"),
    ],
)
def test_cluster_addresses(spec: dict[str, Any], place: str) -> None:
    assert cluster_address({"spec": spec}, "s", 443) == place


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"clusterIP": "None"}, 'cannot route to service with ClusterIP "None"'),
        ({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}, 'no service port 443 found for service "s"'),
    ],
)
def test_services_without_a_cluster_address(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        cluster_address({"spec": spec}, "s", 443)


def test_ready_endpoints_at_the_target_port() -> None:
    service = {"spec": {"ports": PORTS, "ipFamilies": ["IPv4", "IPv6"]}}
    slices = [
        piece(at("fd00::1", ready=True), family="IPv6"),
        piece(at("10.1.0.1", ready=True), at("10.1.0.2", ready=False), at("10.1.0.3")),
        piece(at("10.1.0.4"), name="metrics"),
    ]
    assert endpoint_addresses(service, "s", 443, slices) == ["10.1.0.1:8443", "10.1.0.3:8443", "[fd00::1]:8443"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ports": PORTS}, 'no endpoints available for service "s"'),
        ({"ports": []}, 'no service port 443 found for service "s"'),
        ({"type": "ExternalName"}, 'unsupported service type "ExternalName"'),
    ],
)
def test_services_without_endpoints(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        endpoint_addresses({"spec": spec}, "s", 443, [piece(at("10.1.0.1", ready=False))])


async def test_the_cluster_ip_is_used_while_it_takes_connections() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    service = {"spec": {"clusterIP": "127.0.0.1", "ports": [{"name": "https", "port": port}]}}
    addresses = ServiceAddresses(lambda namespace, name: service, lambda namespace, name: [piece(at("10.1.0.1"))])
    assert await addresses.resolve("n", "s", port) == f"127.0.0.1:{port}"
    await listeners[0].aclose()
    assert await addresses.resolve("n", "s", port) == f"127.0.0.1:{port}", "the trial serves a while"
    addresses.failed("n", "s", port, f"127.0.0.1:{port}")
    assert await addresses.resolve("n", "s", port) == "10.1.0.1:8443"


async def test_an_endpoint_is_kept_while_it_is_ready() -> None:
    slices = [piece(*[at(f"10.1.0.{number}") for number in range(1, 9)])]
    service = {"spec": {"clusterIP": "10.0.0.1", "ports": PORTS}}
    addresses = ServiceAddresses(lambda namespace, name: service, lambda namespace, name: slices, endpoints_first=True)
    chosen = await addresses.resolve("n", "s", 443)
    assert {await addresses.resolve("n", "s", 443) for _ in range(20)} == {chosen}
    slices[:] = [piece(at("10.1.0.9"))]
    assert await addresses.resolve("n", "s", 443) == "10.1.0.9:8443"


async def test_a_service_without_endpoints_keeps_its_cluster_ip() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    service = {"spec": {"clusterIP": "127.0.0.1", "ports": [{"port": port}]}}
    addresses = ServiceAddresses(lambda namespace, name: service, lambda namespace, name: [])
    assert await addresses.resolve("n", "s", port) == f"127.0.0.1:{port}"
