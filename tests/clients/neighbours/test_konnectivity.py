"""kubectl through konnectivity's own proxy server and agent, as --egress-selector-config-file says."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from harness import BINARIES, eventually, home, server_in
from programs import Kubectl

from tests.clients.neighbours.conftest import free_port
from tests.clients.nodes.session_pods import SPDY, Pod, kubelet_in, pod_on
from tests.support.certificates import CA

LARGE = "".join(f"{number}\n" for number in range(500_000))
SERVER, CLIENT = [ExtendedKeyUsageOID.SERVER_AUTH], [ExtendedKeyUsageOID.CLIENT_AUTH]


@dataclass
class Proxy:
    """A proxy server with its agent. ``connection``: the one for an EgressSelectorConfiguration."""

    connection: dict[str, Any]
    agent: subprocess.Popen[bytes]


@contextmanager
def proxy_in(folder: Path, mode: str, *, tcp: bool) -> Iterator[Proxy]:
    authority = CA("konnectivity")
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    cert, key = map(str, authority.files(folder, "proxy", usage=SERVER, extensions=[(host, False)]))
    agent_cert, agent_key = map(str, authority.files(folder, "agent", usage=CLIENT))
    our_cert, our_key = map(str, authority.files(folder, "apiserver", usage=CLIENT))
    ca = str(folder / "ca.crt")
    Path(ca).write_bytes(authority.pem)
    port, agent_port, health, socket = free_port(), free_port(), free_port(), str(folder / "proxy.socket")
    command = [str(BINARIES / "konnectivity-server"), "--mode", mode, "--agent-port", str(agent_port)]
    command += ["--agent-bind-address", "127.0.0.1", "--cluster-cert", cert, "--cluster-key", key]
    command += ["--cluster-ca-cert", ca, "--admin-port", str(free_port()), "--health-port", str(free_port())]
    if tcp:
        command += ["--server-port", str(port), "--server-bind-address", "127.0.0.1"]
        command += ["--server-cert", cert, "--server-key", key, "--server-ca-cert", ca]
        files = {"caBundle": ca, "clientCert": our_cert, "clientKey": our_key}
        transport: dict[str, Any] = {"tcp": {"url": f"https://127.0.0.1:{port}", "tlsConfig": files}}
    else:
        command += ["--server-port", "0", "--uds-name", socket]
        transport = {"uds": {"udsName": socket}}
    agent = [str(BINARIES / "konnectivity-agent"), "--ca-cert", ca, "--agent-cert", agent_cert]
    agent += ["--agent-key", agent_key, "--proxy-server-host", "127.0.0.1", "--proxy-server-port", str(agent_port)]
    agent += ["--health-server-port", str(health), "--admin-server-port", str(free_port())]

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with (folder / "konnectivity.log").open("wb") as log, ExitStack() as stack:
        running = []
        for each in (command, agent):
            process = stack.enter_context(subprocess.Popen(each, stdout=log, stderr=log))
            stack.callback(process.kill)
            running.append(process)
        eventually(is_ready, "the agent is connected")
        protocol = "GRPC" if mode == "grpc" else "HTTPConnect"
        yield Proxy({"proxyProtocol": protocol, "transport": transport}, running[1])


@contextmanager
def kubectl_through(proxy: Proxy, folder: Path) -> Iterator[Kubectl]:
    """Run a server that reaches the cluster through the proxy."""
    configuration = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": proxy.connection}],
    }
    file = folder / "egress.yaml"
    file.write_text(json.dumps(configuration))
    with home("egress") as directory:
        server = server_in(directory / "data", arguments=["--egress-selector-config-file", str(file)])
        try:
            server.start().api().namespace("egress")
            yield Kubectl(str(BINARIES / "kubectl"), server, folder, "egress")
        finally:
            server.close()


@pytest.mark.parametrize(("mode", "tcp"), [("grpc", False), ("http-connect", False), ("http-connect", True)])
def test_sessions_lead_through_konnectivity(tmp_path: Path, mode: str, *, tcp: bool) -> None:
    with (
        proxy_in(tmp_path, mode, tcp=tcp) as proxy,
        kubectl_through(proxy, tmp_path) as kubectl,
        kubelet_in(tmp_path) as (_, port),
    ):
        for environment in ({}, SPDY):
            with pod_on(kubectl, environment, port) as pod:
                assert pod.exec("echo out; exit 3").returncode == 3
                copied = pod.exec("cat", "-i", stdin=LARGE)
                assert copied.stdout == LARGE
        with pod_on(kubectl, {}, port) as pod:
            check_failures(pod, proxy)
        metrics = kubectl("get", "--raw", "/metrics")
        assert f'apiserver_egress_dialer_dial_start_total{{protocol="{mode.replace("-", "_")}"' in metrics
        assert "apiserver_egress_dialer_dial_failure_count{" in metrics


def check_failures(pod: Pod, proxy: Proxy) -> None:
    """The agent is lost in the middle of a session, and stays away."""
    with pod.running("exec", "-i", pod.name, "-c", "c", "--", "cat") as lines:
        assert lines.process.stdin is not None
        lines.process.stdin.write("hello\n")
        lines.process.stdin.flush()
        lines.until(lambda line: line == "hello")
        proxy.agent.kill()
        while lines.next() is not None:
            pass
    failed = pod.exec("echo out")
    assert failed.returncode != 0
    assert pod.kubectl.call("get", "pods").returncode == 0
