"""Sessions whose kubelet is killed, whose node is cut off, or whose server stops: each ends with an error, none hangs.

Afterwards the server has no connection of a session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import eventually
from programs import Lines

from kubechronicle.ops.development.real_node.node import Node, wait_until_ready
from tests.clients.real_node.pods import Pod, run_pod

KUBELET_PORT = 10250
SCRIPT = "echo started; exec httpd -f -p 8080"
LONG = 150.0  # seconds until a session must have ended


def connections(pid: int) -> int:
    """Return the number of a process' connections to kubelets, each of which belongs to a session."""
    links = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{KUBELET_PORT:04X}") and f"socket:[{row[9]}]" in links for row in rows)


@contextlib.contextmanager
def sessions(pod: Pod) -> Iterator[dict[str, tuple[subprocess.Popen[str], Lines]]]:
    """Open a session of each kind, with output or connections under way."""
    loop = "while :; do echo tick; sleep 0.1; done"
    with contextlib.ExitStack() as stack:
        opened: dict[str, tuple[subprocess.Popen[str], Lines]] = {}
        opened["exec"] = stack.enter_context(pod.following("exec", pod.name, "--", "sh", "-c", loop))
        opened["exec"][1].until(lambda line: line == "tick")
        opened["silent exec"] = stack.enter_context(
            pod.following("exec", pod.name, "--", "sh", "-c", "echo up; exec sleep 3600")
        )
        opened["silent exec"][1].until(lambda line: line == "up")
        opened["logs"] = stack.enter_context(pod.following("logs", "-f", pod.name))
        opened["logs"][1].until(lambda line: line == "started")
        process, lines, _ = stack.enter_context(pod.forwarding(8080))
        opened["port-forward"] = process, lines
        yield opened


def assert_ended(opened: dict[str, tuple[subprocess.Popen[str], Lines]]) -> None:
    """Assert that every session ends, with an error."""
    for name, (process, lines) in opened.items():
        said = []
        while (line := lines.next(timeout=LONG)) is not None:
            said.append(line)
        assert process.wait(LONG) != 0, f"{name} ended without an error: {said[-3:]}"


@pytest.fixture
def pod(node: Node, namespace: str, environment: dict[str, str]) -> Pod:
    return run_pod(node, namespace, SCRIPT, environment=environment)


@pytest.fixture(autouse=True)
def no_leak(node: Node) -> Iterator[None]:
    """Assert that the server has closed its connections to the kubelet. One may be kept for the next request."""
    yield
    process = node.server.process
    assert process is not None
    eventually(lambda: connections(process.pid) <= 1, "the connections of the sessions are closed", timeout=LONG)


def restart(node: Node, name: str) -> None:
    node.components[name].start()
    wait_until_ready(node, node.components[name])


def test_a_killed_kubelet(node: Node, pod: Pod) -> None:
    with sessions(pod) as opened:
        node.components["kubelet"].kill()
        try:
            assert_ended(opened)
            refused = pod.call("exec", pod.name, "--", "true")
            assert refused.returncode == 1
            assert "connection refused" in refused.stderr
        finally:
            restart(node, "kubelet")
    eventually(lambda: pod.shell("echo back").stdout == "back\n", "the kubelet serves sessions again")


def test_a_stopped_server(node: Node, pod: Pod) -> None:
    process = node.server.process
    assert process is not None
    with sessions(pod) as opened:
        os.kill(process.pid, signal.SIGTERM)
        try:
            assert_ended(opened)
            eventually(lambda: not process.running, "the server has stopped", timeout=LONG)
        finally:
            process.restart()
    eventually(lambda: pod.shell("echo back").stdout == "back\n", "the server serves sessions again")


def test_a_node_that_is_cut_off(node: Node, pod: Pod) -> None:
    """A short cut harms no session: packets are lost, no connection is reset, and TCP sends again."""
    with sessions(pod) as opened:
        node.place.cut()
        try:
            refused = pod.call("exec", pod.name, "--", "true", timeout=LONG)
            assert refused.returncode == 1
            assert "timeout" in refused.stderr or "timed out" in refused.stderr
        finally:
            node.place.mend()
        opened["exec"][1].until(lambda line: line == "tick", timeout=LONG)
    wait_until_ready(node, node.components["kubelet"])


def test_a_node_that_is_lost(node: Node, namespace: str) -> None:
    """Keep-alive probes find out after 75 seconds, unless bytes are on the way: pings of port-forward and of SPDY."""
    pod = run_pod(node, namespace, SCRIPT)
    with sessions(pod) as opened:
        node.place.cut()
        try:
            del opened["port-forward"]
            assert_ended(opened)
        finally:
            node.place.mend()
    eventually(lambda: pod.shell("echo back").stdout == "back\n", "the node serves sessions again", timeout=LONG)


def test_a_client_that_leaves_ends_the_command(node: Node, pod: Pod) -> None:
    """Its command sees the end of its input, or is killed with the session, as the kubelet and containerd decide."""
    command = "cat - /dev/null"
    with pod.following("exec", "-i", pod.name, "--", "sh", "-c", f"echo up; exec {command}") as (process, lines):
        lines.until(lambda line: line == "up")
        eventually(lambda: command in pod.shell("ps").stdout, "the command runs")
        process.kill()
    eventually(lambda: command not in pod.shell("ps").stdout, "the command has ended", timeout=LONG)
