"""kubectl port-forward and the proxies with a real kubelet: HTTP, 100 MB, 50 connections at once."""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading

import pytest

from kubechronicle.ops.development.real_node.node import Node
from tests.clients.real_node.pods import Pod, run_pod

MEBIBYTES, CONNECTIONS = 100, 50
SERVE = (
    f"mkdir /tmp/www; cd /tmp/www; head -c {MEBIBYTES << 20} /dev/urandom > large; sha256sum large > sum;"
    " echo page > index.html; httpd -f -p 8080"
)


@pytest.fixture
def pod(node: Node, namespace: str, environment: dict[str, str]) -> Pod:
    pod = run_pod(node, namespace, SERVE, environment=environment)
    served = pod.shell("until wget -qO /dev/null 127.0.0.1:8080; do sleep 0.1; done")
    assert served.returncode == 0, served.stderr
    return pod


def fetch(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_100_mb_and_many_connections(pod: Pod) -> None:
    wanted = pod.shell("cat /tmp/www/sum").stdout.split()[0]
    with pod.forwarding(8080) as (process, _, port):
        assert fetch(port, "/") == b"page\n"
        assert hashlib.sha256(fetch(port, "/large")).hexdigest() == wanted
        got: list[bytes] = []
        threads = [threading.Thread(target=lambda: got.append(fetch(port, "/"))) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [b"page\n"] * CONNECTIONS
        assert process.poll() is None


def test_connections_open_at_once(pod: Pod) -> None:
    with pod.forwarding(8080) as (_, _, port):
        sockets = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CONNECTIONS)]
        try:
            for one in reversed(sockets):
                one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            for one in sockets:
                received = b""
                while chunk := one.recv(4096):
                    received += chunk
                assert received.endswith(b"page\n")
        finally:
            for one in sockets:
                one.close()


def test_a_port_nobody_listens_on(pod: Pod) -> None:
    with pod.forwarding(9) as (_, lines, port), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"hello")
        assert connection.recv(1) == b""
        lines.until(lambda line: "refused" in line)


def test_proxies(node: Node, namespace: str) -> None:
    pod = run_pod(node, namespace, SERVE)
    node.kubectl("--namespace", namespace, "expose", "pod", pod.name, "--port=80", "--target-port=8080", "--name=www")
    node.kubectl("--namespace", namespace, "wait", "--for=create", "endpoints/www", "--timeout=60s")
    path = f"/api/v1/namespaces/{namespace}"
    with node.server.client() as client:
        for target in (f"pods/{pod.name}:8080", "services/www"):
            assert _get_when_served(client, f"{path}/{target}/proxy/index.html") == "page\n"
        assert "kubelet_running_pods" in client.get("/api/v1/nodes/node-1/proxy/metrics").text
        assert pod.name in client.get("/api/v1/nodes/node-1/proxy/pods").text


def _get_when_served(client: object, path: str) -> str:
    from harness import eventually

    def look() -> str:
        answer = client.get(path)  # type: ignore[attr-defined]
        return str(answer.text) if answer.status_code == 200 else ""

    return eventually(look, path)
