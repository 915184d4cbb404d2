"""Proxies to Services: they go to the pods that EndpointSlices name, as in v1.37; Endpoints mean nothing to them."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import InProcess, open_server, pod

from kubechronicle.http.handlers import proxies
from kubechronicle.http.handlers.proxies import Location
from kubechronicle.http.messages import Request, Response

NAMESPACE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NONE = 'no endpoints available for service "web"'


ADDRESS = "10.1.0.1"


async def _web(server: InProcess, port: int, **endpoint: Any) -> None:
    """Create a pod at ADDRESS, a Service, and a slice with the pod as endpoint, or another."""
    await server.post(f"{NAMESPACE}/pods", pod("p"))
    await server.patch(f"{NAMESPACE}/pods/p/status", {"status": {"podIP": ADDRESS}})
    service = {"metadata": {"name": "web"}, "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}
    await server.post(f"{NAMESPACE}/services", service)
    target = {"kind": "Pod", "namespace": "default", "name": "p"}
    usual = {"addresses": [ADDRESS], "targetRef": target}
    body = {
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        "endpoints": [{**usual, **endpoint}],
    }
    await server.post(SLICES, body)


async def test_a_ready_pod_of_a_slice_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: Request, location: Location, *_: Any, **options: Any) -> Response:
        return Response(200, [], f"{location.scheme}://{location.authority}".encode())

    monkeypatch.setattr(proxies, "proxy", answer)
    async with open_server() as server:
        await _web(server, 8080)
        for name, scheme in (("web:http", "http"), ("web:80", "http"), ("https:web:http", "https")):
            asked = await server.ask("GET", f"{NAMESPACE}/services/{name}/proxy/")
            assert asked.body == f"{scheme}://{ADDRESS}:8080".encode(), name


@pytest.mark.parametrize(
    "endpoint",
    [
        {"conditions": {"ready": False}},
        {"targetRef": None},
        {"targetRef": {"kind": "Pod", "namespace": "default", "name": "absent"}},
        {"targetRef": {"kind": "Pod", "namespace": "kube-system", "name": "p"}},
        {"addresses": ["10.1.0.2"]},
    ],
)
async def test_other_endpoints_are_not_proxied_to(endpoint: dict[str, Any]) -> None:
    async with open_server() as server:
        await _web(server, 1, **endpoint)
        answer = (await server.ask("GET", f"{NAMESPACE}/services/web:http/proxy/")).refused(503)
        assert answer["message"] == NONE


async def test_endpoints_mean_nothing() -> None:
    async with open_server() as server:
        await _web(server, 1)
        await server.delete(f"{SLICES}/web-1")
        address = {"ip": ADDRESS, "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}}
        subsets = [{"addresses": [address], "ports": [{"name": "http", "port": 1}]}]
        await server.post(f"{NAMESPACE}/endpoints", {"metadata": {"name": "web"}, "subsets": subsets})
        for name, message in (("web:http", NONE), ("web:81", 'no service port 81 found for service "web"')):
            answer = (await server.ask("GET", f"{NAMESPACE}/services/{name}/proxy/")).refused(503)
            assert answer["message"] == message
