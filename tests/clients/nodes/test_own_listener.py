"""Connections whose address a client chooses never lead to a listener of the server, whatever the form of the address.

Each would come back as another user: to kubelets the server shows a certificate of the group system:masters.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from harness import Answer, Server, eventually, unique

FORMS = ("127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost", "0x7f.1", "0.0.0.0", "2130706433")
REFUSED = "address not allowed"
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@contextmanager
def node_at(server: Server, host: str, port: int) -> Iterator[str]:
    """Register a Node with this address, and a pod on it, as a kubelet may. Yield the name of both."""
    name = unique("own")
    with closing(server.api()) as api:
        status = {
            "addresses": [{"type": "InternalIP", "address": host}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        node = api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        api.request("PUT", f"/api/v1/nodes/{name}/status", {**node, "status": status}).expect(200)
        spec = {"nodeName": name, "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        try:
            yield name
        finally:
            api.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            api.request("DELETE", f"/api/v1/nodes/{name}")


def ask(server: Server, method: str, path: str, **fields: str) -> Answer:
    with closing(server.api()) as api:
        return api.request(method, path, headers=fields)


@pytest.mark.parametrize("host", FORMS)
def test_nodes_and_pods(server: Server, host: str) -> None:
    secrets = "api/v1/namespaces/kube-system/secrets"
    with node_at(server, host, server.port) as name:
        for place in (name, f"https:{name}:{server.port}", f"http:{name}:{server.port}"):
            for fields in ({}, SPDY, WEBSOCKET):
                answer = ask(server, "GET", f"/api/v1/nodes/{place}/proxy/{secrets}", **fields)
                assert (answer.status, answer.json()["message"]) == (400, REFUSED)
        answer = ask(server, "GET", f"{PODS}/{name}/log")
        assert answer.status == 500
        assert answer.json()["message"].endswith(f": {REFUSED}")
        for session in ("exec?command=a&stdout=1", "attach?stdout=1", "portforward"):
            answer = ask(server, "POST", f"{PODS}/{name}/{session}", **SPDY)
            assert (answer.status, answer.json()["message"]) == (500, f"error dialing backend: {REFUSED}")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0x7f.1"])
def test_webhooks(server: Server, host: str) -> None:
    name, url = unique("own"), f"https://{host}:{server.port}/api/v1/nodes"
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": url},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"own": name}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": name}}}

    with closing(server.api()) as api:

        def refused() -> dict[str, Any] | None:
            answer = api.request("POST", f"{CONFIGMAPS}?dryRun=All", body)
            return answer.json() if answer.status == 500 else None

        api.create(path, {**kind, "metadata": {"name": name}, "webhooks": [hook]})
        try:
            assert eventually(refused, "the webhook is asked")["message"].endswith(f": {REFUSED}")
        finally:
            api.request("DELETE", f"{path}/{name}")


@pytest.mark.parametrize("host", ["localhost", "ip6-localhost"])
def test_api_services(server: Server, host: str) -> None:
    """A Service cannot have an address of this machine, but an external name can mean one."""
    with suppress(OSError):
        socket.getaddrinfo(host, 1)
        name = unique("own")
        spec = {
            "group": f"{name}.example.com",
            "version": "v1",
            "groupPriorityMinimum": 10,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": name, "port": server.port},
        }
        path, metadata = "/apis/apiregistration.k8s.io/v1/apiservices", {"name": f"v1.{name}.example.com"}
        service = {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": host}}
        with closing(server.api()) as api:
            api.create("/api/v1/namespaces/default/services", {"apiVersion": "v1", "kind": "Service", **service})
            kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
            api.create(path, {**kind, "metadata": metadata, "spec": spec})

            def message() -> str:
                status = api.get(f"{path}/{metadata['name']}").get("status") or {}
                return str(next((each["message"] for each in status.get("conditions") or ()), ""))

            try:
                assert REFUSED in eventually(message, "the condition is there")
            finally:
                api.request("DELETE", f"{path}/{metadata['name']}")
                api.request("DELETE", f"/api/v1/namespaces/default/services/{name}")


@contextmanager
def forwarder(port: int) -> Iterator[int]:
    """Forward TCP to a server, as a load balancer does. Yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def copy(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", port))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=copy, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_way_back_that_no_address_shows(server: Server) -> None:
    """Through a load balancer the address is another one. The certificate for kubelets is no user at an API server."""
    asked: list[Callable[[str], Answer]] = [
        lambda name: ask(server, "GET", f"{PODS}/{name}/log"),
        lambda name: ask(server, "POST", f"{PODS}/{name}/exec?command=a&stdout=1", **SPDY),
    ]
    with forwarder(server.port) as port, node_at(server, "127.0.0.1", port) as name:
        for each in asked:
            answer = each(name)
            assert answer.status in (401, 500)
            assert b"Unauthorized" in answer.body


def test_the_certificate_for_kubelets_is_a_user_without_the_field(server: Server) -> None:
    """An operator may use it by hand, as kubeadm's users do."""
    context = server.client_context()
    pki = server.data_dir / "pki"
    context.load_cert_chain(pki / "apiserver-kubelet-client.crt", pki / "apiserver-kubelet-client.key")
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
    with closing(connection):
        connection.request("GET", "/api/v1/nodes")
        assert connection.getresponse().status == 200
