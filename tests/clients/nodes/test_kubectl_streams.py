"""kubectl exec, attach, cp and port-forward, over WebSocket and SPDY, with the streaming code of real kubelets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl, Lines

from tests.support.certificates import CA

SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
LARGE = bytes(range(256)) * 40_000
Kubelet = subprocess.Popen[str]


class Pod:
    """A pod on a node with a stand-in as its kubelet. Calls name its container."""

    def __init__(self, kubectl: Kubectl, environment: dict[str, str]) -> None:
        self.kubectl = kubectl
        self.environment = environment
        self.name = unique("streams")

    def call(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.kubectl.call(*arguments, stdin=stdin, environment=self.environment)

    def exec(self, script: str, *flags: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.call("exec", *flags, self.name, "-c", "c", "--", "sh", "-c", script, stdin=stdin)

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[Lines]:
        """Run a kubectl within the block, as Kubectl.following does."""
        environment = {**os.environ, **self.kubectl._environment(), **self.environment}
        command = self.kubectl.command(*arguments)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment, **output) as process:  # type: ignore[call-overload]
            try:
                yield Lines(process)
            finally:
                process.kill()


@contextlib.contextmanager
def kubelet_in(folder: Path) -> Iterator[tuple[Kubelet, int]]:
    """Run a stand-in within the block. Yields its process and port."""
    prepare("kubelet")
    certificate, key = CA("kubelets").files(folder, "kubelet")
    command = [str(BINARIES / "kubelet-standin"), str(certificate), str(key)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def create_pod(pod: Pod, port: int) -> None:
    """Create the pod and its node, whose kubelet listens at this port of 127.0.0.1."""
    api = pod.kubectl.server.api()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": pod.name}}
    api.request("POST", "/api/v1/nodes", node).expect(201)
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    node["status"] = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    api.request("PUT", f"/api/v1/nodes/{pod.name}/status", node).expect(200)
    containers = [{"name": name, "image": "i", "stdin": True} for name in ("c", "missing")]
    spec = {"nodeName": pod.name, "containers": containers, "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}, "spec": spec}
    created = f"/api/v1/namespaces/{pod.kubectl.namespace}/pods"
    api.request("POST", created, body).expect(201)
    state = {"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "i", "state": {"running": {}}}
    body["status"] = {"phase": "Running", "containerStatuses": [state]}
    api.request("PUT", f"{created}/{pod.name}/status", body).expect(200)


@contextlib.contextmanager
def pod_on(kubectl: Kubectl, environment: dict[str, str], port: int) -> Iterator[Pod]:
    pod = Pod(kubectl, environment)
    create_pod(pod, port)
    try:
        yield pod
    finally:
        kubectl("delete", "pod", pod.name, "--force", "--grace-period=0")
        kubectl("delete", "node", pod.name)


@pytest.fixture(scope="module")
def kubelet_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with kubelet_in(tmp_path_factory.mktemp("kubelet")) as (_, port):
        yield port


@pytest.fixture(params=[{}, SPDY], ids=["websocket", "spdy"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


@pytest.fixture
def pod(kubectl: Kubectl, environment: dict[str, str], kubelet_port: int) -> Iterator[Pod]:
    with pod_on(kubectl, environment, kubelet_port) as pod:
        yield pod


def test_exec_returns_output_and_exit_codes(pod: Pod) -> None:
    done = pod.exec("echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert pod.exec("exit 3").returncode == 3
    assert pod.exec("kill -9 $$").returncode == 137
    assert pod.exec("cat; echo end", "-i", stdin="piped\n").stdout == "piped\nend\n"
    missing = pod.call("exec", pod.name, "-c", "missing", "--", "ls")
    assert missing.returncode == 1
    assert 'unable to upgrade connection: container not found ("missing")' in missing.stderr


def test_a_terminal_has_the_size_and_the_exit_code_of_the_command(pod: Pod) -> None:
    script = "test -t 0 && test -t 1 && exit 7"
    exec_ = f"stty rows 33 cols 99; exec {' '.join(pod.kubectl.command('exec', '-it', pod.name, '-c', 'c'))}"
    wait = "while test $(stty size | cut -c1) = 0; do :; done; stty size;"
    environment = {**os.environ, **pod.kubectl._environment(), **pod.environment}
    command = ["script", "-eqc", f"{exec_} -- sh -c '{wait} {script}'", "/dev/null"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 7, done.stdout
    assert "33 99" in done.stdout


def test_attach_copies_both_ways(pod: Pod) -> None:
    assert "attached\n" in pod.call("attach", "-i", pod.name, "-c", "c", stdin="attached\n").stdout


def test_cp_both_ways(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(LARGE)
    there, back = f"{pod.name}:{tmp_path}/there", tmp_path / "back"
    for source, target in ((str(tmp_path / "from"), there), (there, str(back))):
        done = pod.call("cp", source, target, "-c", "c")
        assert done.returncode == 0, done.stderr
    assert back.read_bytes() == LARGE


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(LARGE)))
        self.end_headers()
        self.wfile.write(LARGE)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_port_forward_carries_many_connections(pod: Pod) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever).start()
        try:
            with pod.running("port-forward", pod.name, f":{page.server_port}", "--address", "127.0.0.1") as lines:
                port = int(lines.until(lambda line: "Forwarding from" in line).split(":")[1].split()[0])
                got: list[bytes] = []

                def fetch() -> None:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    connection.request("GET", "/")
                    got.append(connection.getresponse().read())
                    connection.close()

                threads = [threading.Thread(target=fetch) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert got == [LARGE] * 8
        finally:
            page.shutdown()


def test_a_killed_kubelet_ends_the_session_with_an_error(
    kubectl: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    with kubelet_in(tmp_path) as (kubelet, port), pod_on(kubectl, environment, port) as pod:
        with pod.running("exec", pod.name, "-c", "c", "--", "sh", "-c", "echo up; exec tail -f /dev/null") as lines:
            lines.until(lambda line: "up" in line)
            kubelet.kill()
            if not environment:
                lines.until(lambda line: "the connection to the kubelet was lost" in line)
            while lines.next() is not None:
                pass
        refused = pod.exec("true")
        assert refused.returncode == 1
        assert f"dial tcp 127.0.0.1:{port}: connect: connection refused" in refused.stderr


def test_the_right_to_create_is_needed_for_get(pod: Pod, server: Server) -> None:
    kubectl, role = pod.kubectl, unique("getter")
    kubectl("create", "role", role, "--verb=get", "--resource=pods,pods/exec")
    kubectl("create", "rolebinding", role, "--role", role, "--user", role)
    done = pod.call("exec", "--as", role, pod.name, "-c", "c", "--", "true")
    assert done.returncode == 1
    assert "forbidden" in done.stderr.lower()
    rule = [{"op": "add", "path": "/rules/0/verbs/-", "value": "create"}]
    kubectl("patch", "role", role, "--type=json", "-p", json.dumps(rule))
    rule[0]["path"] = "/rules/1/verbs/-"
    assert pod.call("exec", "--as", role, pod.name, "-c", "c", "--", "true").returncode == 0
    kubectl("delete", "rolebinding,role", role)


def test_free_ports_are_refused_by_the_kubelet(pod: Pod) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pod.running("port-forward", pod.name, f":{port}", "--address", "127.0.0.1") as lines:
            own = int(lines.until(lambda line: "Forwarding from" in line).split(":")[1].split()[0])
            with socket.create_connection(("127.0.0.1", own), timeout=60) as connection:
                assert connection.recv(1) == b""
            lines.until(lambda line: "connection refused" in line)
