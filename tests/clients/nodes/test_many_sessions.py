"""Many sessions and followed logs at once: what they cost others, and what is left of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BINARIES, Api, eventually, prepare
from programs import GoProgram, Kubectl

from kubechronicle.ops.development.server_process import resident_mib
from tests.clients.nodes.session_pods import pod_on

SESSIONS, LOGS = 200, 200
CONNECTIONS = 2 * SESSIONS + LOGS
"""A session has one to the client, and one to the kubelet. The client's logs share one (HTTP/2)."""
MIB_EACH = 0.5
"""Memory of one session: two TLS connections, their tasks and buffers."""


@pytest.fixture(scope="session")
def kubectl_binary() -> str:
    """kubectl of the served version only: it just prepares the pod."""
    prepare("kubectl")
    return str(BINARIES / "kubectl")


@pytest.fixture
def many(informers: Path, kubectl: Kubectl, kubelet_port: int, tmp_path: Path) -> Iterator[tuple[float, GoProgram]]:
    """The server's memory in MiB before the sessions, and their client. Each has a line three times a second."""
    with pod_on(kubectl, {}, kubelet_port) as pod:
        where = ["--kubeconfig", str(kubectl.server.kubeconfig), "--namespace", kubectl.namespace, "--pod", pod.name]
        before = resident_mib(kubectl.server.pid)
        program = GoProgram(tmp_path, "sessions", *where, "--commands", str(SESSIONS), "--logs", str(LOGS))
        yield before, program
        program.close()


def slowest(api: Api, number: int) -> float:
    """Return the seconds of the 99th percentile of so many GETs."""
    taken = []
    for _ in range(number):
        begun = time.perf_counter()
        api.get("/api/v1/namespaces/default")
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[int(number * 0.99)]


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files")
def test_many_sessions_and_logs_leave_room_for_others(kubectl: Kubectl, many: tuple[float, GoProgram]) -> None:
    before, program = many
    server = kubectl.server
    api, pid = server.api(), server.pid
    program.wait("ready", timeout=120)
    held, opened = resident_mib(pid), files(pid)
    assert held - before < MIB_EACH * (SESSIONS + LOGS)
    assert opened > CONNECTIONS
    assert slowest(api, 300) < 1.0
    assert resident_mib(pid) - held < 20, "memory grows while lines are exchanged"
    report = program.finish(timeout=120)
    assert report["failed"] == 0
    assert report["lines"] >= SESSIONS
    assert report["logged"] >= LOGS
    eventually(lambda: files(pid) < opened - CONNECTIONS + 20, "all connections are closed")
