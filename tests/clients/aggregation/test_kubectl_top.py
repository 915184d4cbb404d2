"""A stand-in for metrics-server behind an APIService, which knows this server by its certificate.

With kubectl top, and with two replicas.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certificates import CA
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from harness import Api, Cluster, eventually
from programs import Kubectl

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
VERBS = ["get", "list"]
RESOURCES = [
    {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": VERBS},
    {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": VERBS},
]
LIST = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": RESOURCES}
POD = {
    "metadata": {"name": "web"},
    "timestamp": "2026-01-01T00:00:00Z",
    "window": "15s",
    "containers": [{"name": "web", "usage": {"cpu": "7m", "memory": "21Mi"}}],
}


class StandIn(BaseHTTPRequestHandler):
    """Answers requests for pods with one. ``users``: the users named by the proxy."""

    users: set[str]

    def do_GET(self) -> None:
        self.users.add(self.headers.get("X-Remote-User", ""))
        path = self.path.partition("?")[0]
        if path == ROOT:
            self._answer(200, LIST)
        elif path.endswith("/pods"):
            items = {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": [POD]}
            self._answer(200, items)
        else:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def _answer(self, code: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def metrics_server(folder: Path, name: str, clients: Path) -> Iterator[tuple[int, bytes, set[str]]]:
    """Serve with a certificate that names the Service. Yield port, authority and users."""
    authority = CA("metrics")
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    files = authority.files(folder, "metrics", usage=[ExtendedKeyUsageOID.SERVER_AUTH], extensions=[(names, False)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    context.load_verify_locations(clients)
    context.verify_mode = ssl.CERT_REQUIRED
    users: set[str] = set()
    handler = type("Handler", (StandIn,), {"users": users})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, authority.pem, users
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_top_pods(kubectl: Kubectl, tmp_path: Path) -> None:
    clients = kubectl.server.data_dir / "pki" / "front-proxy-ca.crt"
    with metrics_server(tmp_path, f"metrics.{kubectl.namespace}.svc", clients) as (port, authority, users):
        name = f"{VERSION}.{GROUP}"
        service = {"name": "metrics", "namespace": kubectl.namespace}
        spec = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {**service, "port": port},
            "caBundle": base64.b64encode(authority).decode(),
        }
        objects = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": service,
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": spec,
            },
        ]
        kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl("wait", "--for=condition=Available", f"apiservice/{name}", "--timeout=30s")
        eventually(lambda: "pods" in kubectl("api-resources", "--api-group", GROUP), "the group is discovered")
        assert "web    7m           21Mi" in kubectl("top", "pods")
        assert {"system:kube-aggregator", "kubernetes-admin"} <= users
    # The server is gone: only its group suffers.
    assert "unable to handle the request" in kubectl.refused("get", "--raw", f"{ROOT}/pods")
    kubectl("get", "pods")
    kubectl("delete", f"apiservice/{name}", "service/metrics")


def test_two_replicas_send_requests_to_one_server(cluster: Cluster, tmp_path: Path) -> None:
    clients = tmp_path / "clients.crt"
    own = [server.data_dir / "pki" / "front-proxy-ca.crt" for server in cluster.servers]
    clients.write_bytes(b"".join(each.read_bytes() for each in own))
    name, services = f"{VERSION}.{GROUP}", "/api/v1/namespaces/default/services"
    api_services = "/apis/apiregistration.k8s.io/v1/apiservices"

    def serves(api: Api) -> bool:
        return api.request("GET", f"{ROOT}/pods").status == 200 and "pods" in json.dumps(api.get(ROOT))

    def is_discovered(api: Api) -> bool:
        return GROUP in [group["name"] for group in api.get("/apis")["groups"]]

    def is_gone(api: Api) -> bool:
        return api.request("GET", ROOT).status == 404

    one, other = (server.api() for server in cluster.servers)
    with closing(one), closing(other):
        with metrics_server(tmp_path, "metrics.default.svc", clients) as (port, authority, _):
            service = {"type": "ExternalName", "externalName": "localhost"}
            one.create(services, {"metadata": {"name": "metrics"}, "spec": service})
            spec = {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": "metrics", "namespace": "default", "port": port},
                "caBundle": base64.b64encode(authority).decode(),
            }
            one.create(api_services, {"metadata": {"name": name}, "spec": spec})
            for api in (one, other):
                eventually(partial(serves, api), "the replica sends requests on")
                assert is_discovered(api)
        other.request("DELETE", f"{api_services}/{name}").expect(200)
        for api in (one, other):
            eventually(partial(is_gone, api), "the replica forgot the server")
            assert not is_discovered(api)
