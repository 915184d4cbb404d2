"""Sessions of other clients than kubectl: the executors of client-go, the official Python client, all subprotocols of
WebSocket, and a node whose kubelet understands WebSockets."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from harness import BINARIES, Server, eventually, prepare
from kubernetes import client, config
from kubernetes.stream import portforward, stream
from programs import GoProgram, Kubectl
from websockets.sync.client import connect

from tests.clients.nodes.session_pods import SPDY, Pod, kubelet_in, pod_on

FAILS = "cat; echo err >&2; exit 7"


@pytest.fixture(scope="session")
def kubectl_binary() -> str:
    """kubectl of the served version only: these tests are about other clients."""
    prepare("kubectl")
    return str(BINARIES / "kubectl")


@pytest.fixture(scope="module")
def node_pod(kubectl: Kubectl, kubelet_port: int) -> Iterator[Pod]:
    with pod_on(kubectl, {}, kubelet_port) as pod:
        yield pod


def counted(server: Server) -> dict[str, float]:
    """Return the metrics of sessions."""
    text = server.api().request("GET", "/metrics").body.decode()
    found = re.findall(r"^(apiserver_(?:stream|websocket)_\S+|kube_apiserver_pod_logs_\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def expect_counted(server: Server, before: dict[str, float], added: dict[str, float]) -> None:
    """Wait until the metrics have grown by just this much: a session is counted after its client has left."""

    def grown() -> dict[str, float]:
        return {name: value - before.get(name, 0) for name, value in counted(server).items()}

    eventually(lambda: {name: value for name, value in grown().items() if value} == added, f"{added} are counted")


@pytest.mark.parametrize("executor", ["websocket", "spdy", "fallback"])
def test_executors_of_client_go(informers: Path, node_pod: Pod, tmp_path: Path, executor: str) -> None:
    kubectl = node_pod.kubectl
    where = ["--kubeconfig", str(kubectl.server.kubeconfig), "--namespace", kubectl.namespace, "--pod", node_pod.name]
    given = "in\n" * 30_000
    program = GoProgram(tmp_path, "sessions", *where, "--executor", executor, "--run", FAILS, "--input", given)
    report = program.wait("report", timeout=60)
    assert (report["out"], report["err"]) == (given, "err\n")
    assert (report["code"], report["error"]) == (7, "")


@pytest.fixture(scope="module")
def core(server: Server) -> Iterator[Any]:
    with config.new_client_from_config(str(server.kubeconfig)) as made:
        yield client.CoreV1Api(made)


def test_exec_and_attach_of_the_python_client(core: Any, node_pod: Pod) -> None:
    where = {"name": node_pod.name, "namespace": node_pod.kubectl.namespace, "container": "c"}
    options = {"stdin": True, "stdout": True, "stderr": True, "tty": False, "_preload_content": False}
    command = ["sh", "-c", "read line; echo got $line; echo err >&2; exit 7"]
    session = stream(core.connect_get_namespaced_pod_exec, command=command, **where, **options)
    session.write_stdin("a line\n")
    session.run_forever(timeout=60)
    assert (session.read_stdout(), session.read_stderr(), session.returncode) == ("got a line\n", "err\n", 7)
    session = stream(core.connect_get_namespaced_pod_attach, **where, **options)
    session.write_stdin("attached\n")
    assert session.readline_stdout(timeout=60) == "attached"
    session.close()


def test_port_forward_of_the_python_client(core: Any, node_pod: Pod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data.upper())

        threading.Thread(target=answer, daemon=True).start()
        port = listener.getsockname()[1]
        namespace = node_pod.kubectl.namespace
        forwarded = portforward(core.connect_get_namespaced_pod_portforward, node_pod.name, namespace, ports=str(port))
        with contextlib.closing(forwarded.socket(port)) as connection:
            connection.setblocking(True)
            connection.sendall(b"abc" * 20_000)
            received = b""
            while len(received) < 60_000:
                data = connection.recv(65536)
                assert data, forwarded.error(port)
                received += data
        assert received == b"ABC" * 20_000
        forwarded.close()


@pytest.mark.parametrize(
    "protocol",
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"],
)
def test_subprotocols(node_pod: Pod, protocol: str) -> None:
    """Base64 channels are texts that begin with the channel's digit."""
    kubectl, is_text = node_pod.kubectl, "base64" in protocol
    query = [("container", "c"), ("stdin", "1"), ("stdout", "1"), ("stderr", "1")]
    query += [("command", each) for each in ("sh", "-c", "head -c 3; echo err >&2; exit 7")]
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{node_pod.name}/exec?{urlencode(query)}"
    url = f"wss://127.0.0.1:{kubectl.server.port}{path}"
    received: dict[int, bytes] = {}
    with connect(url, ssl=kubectl.server.client_context(), subprotocols=[protocol]) as conversation:  # type: ignore[list-item]
        assert conversation.subprotocol == protocol
        conversation.send("0" + base64.b64encode(b"abc").decode() if is_text else b"\0abc")
        for message in conversation:
            assert isinstance(message, str) == is_text
            channel, data = int(message[0]), message[1:]
            if isinstance(data, str):
                data = base64.b64decode(data)
            received[channel] = received.get(channel, b"") + data
    assert (received[1], received[2]) == (b"abc", b"err\n")
    if protocol.startswith(("v4", "v5")):
        assert json.loads(received[3])["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    else:
        assert b"exit status 7" in received[3]


def test_metrics_of_sessions(node_pod: Pod, server: Server) -> None:
    before = counted(server)
    assert node_pod.exec("exit 3").returncode == 3
    assert node_pod.call("exec", node_pod.name, "-c", "missing", "--", "ls").returncode == 1
    node_pod.kubectl("logs", node_pod.name, "-c", "c")
    added: dict[str, float] = {
        'apiserver_stream_translator_requests_total{code="200"}': 1,
        'apiserver_stream_translator_requests_total{code="500"}': 1,
        'apiserver_websocket_streaming_requests_total{proxy_type="translated_at_apiserver",subresource="exec"}': 2,
        'kube_apiserver_pod_logs_insecure_backend_total{usage="enforce_tls"}': 1,
    }
    expect_counted(server, before, added)


@pytest.mark.parametrize("environment", [{}, SPDY], ids=["websocket", "spdy"], indirect=True)
def test_a_kubelet_that_understands_websockets(
    kubectl: Kubectl, environment: dict[str, str], server: Server, tmp_path: Path
) -> None:
    before = counted(server)
    with (
        kubelet_in(tmp_path, "translating") as (kubelet, port),
        pod_on(kubectl, environment, port, "ExtendWebSocketsToKubelet") as pod,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        done = pod.exec("cat; exit 7", "-i", stdin="in")
        assert (done.stdout, done.returncode) == ("in", 7)
        assert "attached\n" in pod.call("attach", "-i", pod.name, "-c", "c", stdin="attached\n").stdout
        target = listener.getsockname()[1]
        with pod.running("port-forward", pod.name, f":{target}", "--address", "127.0.0.1") as lines:
            own = int(lines.until(lambda line: "Forwarding from" in line).split(":")[1].split()[0])
            with socket.create_connection(("127.0.0.1", own)) as near:
                far, _ = listener.accept()
                near.sendall(b"ping")
                assert far.recv(4) == b"ping"
                far.sendall(b"pong")
                assert near.recv(4) == b"pong"
                far.close()
        with pod.running("exec", pod.name, "-c", "c", "--", "sh", "-c", "echo up; exec tail -f /dev/null") as lines:
            lines.until(lambda line: "up" in line)
            kubelet.kill()
            while lines.next() is not None:
                pass
            assert lines.exit_code() == 1
    name = "apiserver_websocket_streaming_requests_total"
    added: dict[str, float] = {
        f'{name}{{proxy_type="proxied_to_kubelet",subresource="exec"}}': 2,
        f'{name}{{proxy_type="proxied_to_kubelet",subresource="attach"}}': 1,
        f'{name}{{proxy_type="proxied_to_kubelet",subresource="portforward"}}': 1,
    }
    expect_counted(server, before, added)
