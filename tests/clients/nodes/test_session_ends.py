"""Sessions that are cut: by a kubelet that dies, a client that leaves, a server that stops."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from harness import BINARIES, Server, eventually, prepare
from programs import Kubectl

from tests.clients.nodes.session_pods import SPDY, Pod, create_pod, kubelet_in, pod_on


@pytest.fixture(scope="session")
def kubectl_binary() -> str:
    """kubectl of the served version only: the ends are those of the server."""
    prepare("kubectl")
    return str(BINARIES / "kubectl")


WAITS = "echo up; exec tail -f /dev/null"
BLOCKS = "echo up; exec sleep 1000"  # does not read its input


def test_a_killed_kubelet_ends_the_session_with_an_error(
    kubectl: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    with kubelet_in(tmp_path) as (kubelet, port), pod_on(kubectl, environment, port) as pod:
        with pod.running("exec", pod.name, "-c", "c", "--", "sh", "-c", WAITS) as lines:
            lines.until(lambda line: "up" in line)
            kubelet.kill()
            lines.until(lambda line: "the connection to the kubelet was lost before the command ended" in line)
            assert lines.exit_code() == 1
        refused = pod.exec("true")
        assert refused.returncode == 1
        assert f"dial tcp 127.0.0.1:{port}: connect: connection refused" in refused.stderr


def test_a_kubelet_killed_while_it_sends_ends_the_session_with_an_error(
    kubectl: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    with (
        kubelet_in(tmp_path) as (kubelet, port),
        pod_on(kubectl, environment, port) as pod,
        pod.running("exec", pod.name, "-c", "c", "--", "yes", "a line of output" * 100) as lines,
    ):
        for _ in range(2_000):
            lines.next()
        kubelet.kill()
        lines.until(lambda line: "the connection to the kubelet was lost" in line)
        assert lines.exit_code() == 1


def test_a_killed_kubelet_ends_port_forward(kubectl: Kubectl, environment: dict[str, str], tmp_path: Path) -> None:
    with (
        kubelet_in(tmp_path) as (kubelet, port),
        pod_on(kubectl, environment, port) as pod,
        pod.running("port-forward", pod.name, ":80", "--address", "127.0.0.1") as lines,
    ):
        lines.until(lambda line: "Forwarding from" in line)
        kubelet.kill()
        lines.until(lambda line: "lost connection to pod" in line)
        assert lines.exit_code() == 1


def queues(port: int) -> dict[str, int]:
    """Return the unread bytes of each established connection at a port of 127.0.0.1, by the port of its peer."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, waiting, *_ = line.split()
        if here.endswith(f":{port:04X}") and state == "01":
            found[there] = int(waiting.split(":")[1], 16)
    return found


def fill(port: int, before: set[str]) -> None:
    """Return when a new connection at the port has unread bytes, and gets no more."""
    last: dict[str, int] = {}

    def is_full() -> bool:
        nonlocal last
        now = {peer: size for peer, size in queues(port).items() if peer not in before and size}
        is_same, last = bool(now) and now == last, now
        return is_same

    eventually(is_full, "the server stops to read", pause=0.3)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the kernel's table of connections")
def test_a_client_that_leaves_ends_a_blocked_session(
    kubectl: Kubectl, environment: dict[str, str], tmp_path: Path
) -> None:
    """The command does not read, so input waits in all buffers when the client is killed."""
    before = set(queues(kubectl.server.port))
    with kubelet_in(tmp_path) as (_, port), pod_on(kubectl, environment, port) as pod, open("/dev/zero") as zeros:
        with pod.running("exec", "-i", pod.name, "-c", "c", "--", "sh", "-c", BLOCKS, stdin=zeros) as lines:
            lines.until(lambda line: "up" in line)
            fill(kubectl.server.port, before)
            assert queues(port)
            lines.process.kill()
        eventually(lambda: not queues(port), "the session with the kubelet ends", timeout=20)


def test_a_server_that_stops_ends_sessions_with_an_error(
    own_server: Server, kubectl_binary: str, kubelet_port: int, tmp_path: Path
) -> None:
    kubectl = Kubectl(kubectl_binary, own_server.start(), tmp_path, "default")
    sessions = (
        ("exec", "{pod}", "-c", "c", "--", "sh", "-c", WAITS),
        ("port-forward", "{pod}", ":80", "--address", "127.0.0.1"),
    )
    with contextlib.ExitStack() as stack:
        running = []
        for environment in ({}, SPDY):
            pod = Pod(kubectl, environment)
            create_pod(pod, kubelet_port)
            for arguments in sessions:
                running.append(stack.enter_context(pod.running(*(each.format(pod=pod.name) for each in arguments))))
        for lines in running:
            lines.next()
        own_server.stop()
        for number, lines in enumerate(running):
            last = "lost connection to pod" if number % 2 else "shutting down"
            lines.until(lambda line, last=last: last in line)
            assert lines.exit_code() == 1
