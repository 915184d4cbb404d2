"""kubectl run, logs, exec, attach, cp and debug with a real kubelet, over WebSocket and over SPDY."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubechronicle.ops.development.real_node.images import AGNHOST, BUSYBOX
from kubechronicle.ops.development.real_node.node import KUBECTL, Node
from tests.clients.real_node.pods import Pod, run_pod

LARGE = 100 << 20  # bytes


@pytest.fixture
def pod(node: Node, namespace: str, environment: dict[str, str]) -> Pod:
    return run_pod(node, namespace, environment=environment)


def test_exec_returns_output_and_exit_codes(pod: Pod) -> None:
    done = pod.shell("echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "err\n" in done.stderr
    assert pod.shell("kill -9 $$").returncode == 137
    assert pod.shell("cat; echo end", "-i", stdin="piped\n").stdout == "piped\nend\n"
    missing = pod.call("exec", pod.name, "--", "no-such-program")
    assert missing.returncode != 0
    assert "no-such-program" in missing.stderr


class Terminal:
    """kubectl on a pseudo-terminal."""

    def __init__(self, pod: Pod, *arguments: str, size: tuple[int, int]) -> None:
        self._main, replica = pty.openpty()
        self.resize(*size)
        command = [str(KUBECTL), "--namespace", pod.namespace, *arguments]
        self.process = subprocess.Popen(
            command, stdin=replica, stdout=replica, stderr=replica, start_new_session=True,
            env=pod.node.environment(pod.environment), preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(replica)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def read_until(self, wanted: str, *, timeout: float = 60) -> str:
        """Read until a text appears. The terminal echoes typed text, so ask for something that was not typed."""
        end, got = time.monotonic() + timeout, b""
        while wanted.encode() not in got:
            ready, _, _ = select.select([self._main], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {wanted!r} in {got!r}"
            got += os.read(self._main, 65536)
        return got.decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@contextlib.contextmanager
def terminal(pod: Pod, *arguments: str, size: tuple[int, int] = (33, 99)) -> Iterator[Terminal]:
    made = Terminal(pod, *arguments, size=size)
    try:
        yield made
    finally:
        made.close()


def test_an_interactive_exec_has_a_terminal(pod: Pod) -> None:
    with terminal(pod, "exec", "-it", pod.name, "--", "sh") as shell:
        shell.type("until test \"$(stty size)\" = '33 99'; do :; done; echo si''zed\n")
        shell.read_until("sized")
        shell.resize(44, 88)
        os.kill(shell.process.pid, signal.SIGWINCH)
        shell.type("until test \"$(stty size)\" = '44 88'; do :; done; echo resi''zed\n")
        shell.read_until("resized")
        shell.type("echo wai''ting; cat\n")
        shell.read_until("waiting")
        shell.type("\x03")  # to the container, not to kubectl; a terminal then drops typed input
        shell.read_until("# ")  # the prompt
        shell.type("echo inter''rupted; exit 7\n")
        shell.read_until("interrupted")
        assert shell.process.wait(60) == 7


def test_attach_joins_the_first_process(node: Node, namespace: str, environment: dict[str, str]) -> None:
    script = "read line; echo got $line; sleep 600"
    pod = run_pod(node, namespace, script, environment=environment, flags=("--stdin", "--attach=false"))
    with pod.following("attach", "-i", pod.name) as (process, lines):
        assert process.stdin is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        lines.until(lambda line: "got hello" in line)


def test_run_attaches_and_returns_the_exit_code(node: Node, namespace: str, environment: dict[str, str]) -> None:
    pod = Pod(node, namespace, "once", environment)
    flags = ["--rm", "-i", "--restart=Never", f"--image={BUSYBOX}"]
    done = pod.call("run", "once", *flags, "--command", "--", "sh", "-c", "cat; exit 5", stdin="typed\n")
    assert done.returncode == 5, done.stderr
    assert "typed\n" in done.stdout


def test_logs(node: Node, namespace: str) -> None:
    script = "i=0; while :; do i=$((i+1)); echo line $i; echo error $i >&2; sleep 0.1; done"
    pod = run_pod(node, namespace, script)
    with pod.following("logs", "-f", pod.name) as (process, lines):
        lines.until(lambda line: line == "line 1")
        lines.until(lambda line: line == "line 30")
        assert process.poll() is None
    last = pod.call("logs", "--tail=2", "--timestamps", pod.name).stdout.splitlines()
    assert len(last) == 2
    assert all(line[:2] == "20" and "T" in line.split()[0] for line in last)
    assert len(pod.call("logs", "--limit-bytes=10", pod.name).stdout) == 10
    pod.call("exec", pod.name, "--", "sh", "-c", "kill 1; kill -9 1")
    assert pod.call("delete", "pod", pod.name, "--grace-period=0", "--force").returncode == 0


def test_logs_of_the_previous_container(node: Node, namespace: str) -> None:
    pod = Pod(node, namespace, "again", {})
    assert (
        pod.call("run", "again", f"--image={BUSYBOX}", "--command", "--", "sh", "-c", "echo life; sleep 1").returncode
        == 0
    )
    restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    assert pod.call("wait", "pod/again", f"--for={restarted}", "--timeout=120s").returncode == 0
    assert pod.call("logs", "--previous", "again").stdout == "life\n"


def test_cp_of_100_mb_both_ways(pod: Pod, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    with source.open("wb") as file:
        for _ in range(LARGE >> 20):
            file.write(os.urandom(1 << 20))
    wanted = hashlib.sha256(source.read_bytes()).hexdigest()
    done = pod.call("cp", str(source), f"{pod.name}:/tmp/there")
    assert done.returncode == 0, done.stderr
    assert pod.shell("sha256sum < /tmp/there").stdout.split()[0] == wanted
    done = pod.call("cp", f"{pod.name}:/tmp/there", str(back))
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(back.read_bytes()).hexdigest() == wanted


def test_debug_joins_a_container_to_a_pod(pod: Pod) -> None:
    # agnhost has tools, and shares the processes of the pod's container.
    command = ["--container=helper", f"--image={AGNHOST}", f"--target={pod.name}", "-i"]
    done = pod.call("debug", pod.name, *command, "--", "sh", "-c", "ps; exit 0", stdin="")
    assert done.returncode == 0, done.stderr
    found = pod.call("logs", pod.name, "-c", "helper").stdout
    assert "sleep 0.2" in found or "while :" in found


def test_debug_of_the_node(node: Node, namespace: str) -> None:
    pod = Pod(node, namespace, "none", {})
    done = pod.call("debug", "node/node-1", f"--image={BUSYBOX}", "-i", "--", "ls", "/host", stdin="")
    assert done.returncode == 0, done.stderr
    name = pod.call("get", "pods", "-o", "name").stdout.strip()
    waited = pod.call("wait", name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    assert waited.returncode == 0, waited.stderr
    assert "etc" in pod.call("logs", name).stdout
