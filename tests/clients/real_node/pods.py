"""Pods for the tests with a real node, and kubectl as a process beside the test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness import unique
from programs import Lines

from kubechronicle.ops.development.real_node.images import BUSYBOX
from kubechronicle.ops.development.real_node.node import KUBECTL, Node

SHELL = "while :; do sleep 0.2; done"


@dataclass(slots=True)
class Pod:
    """A running pod. ``environment``: of every kubectl that is called for it."""

    node: Node
    namespace: str
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def call(self, *arguments: str, stdin: str | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return self.node.call(
            "--namespace", self.namespace, *arguments, stdin=stdin, environment=self.environment, timeout=timeout
        )

    def shell(self, script: str, *flags: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the container by ``kubectl exec``."""
        return self.call("exec", *flags, self.name, "--", "sh", "-c", script, stdin=stdin)

    @contextlib.contextmanager
    def following(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
        """Run a kubectl beside the block. Yields its process, and its output with its errors."""
        command = [str(KUBECTL), "--namespace", self.namespace, *arguments]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.node.environment(self.environment),
        ) as process:  # fmt: skip
            try:
                yield process, Lines(process)
            finally:
                process.kill()

    @contextlib.contextmanager
    def forwarding(self, port: int) -> Iterator[tuple[subprocess.Popen[str], Lines, int]]:
        """Forward a port of the pod. Yields kubectl, its output, and the local port."""
        with self.following("port-forward", self.name, f":{port}", "--address", "127.0.0.1") as (process, lines):
            line = lines.until(lambda line: "Forwarding from" in line)
            yield process, lines, int(line.split(":")[1].split()[0])


def run_pod(
    node: Node,
    namespace: str,
    script: str = SHELL,
    *,
    environment: Mapping[str, str] | None = None,
    image: str = BUSYBOX,
    flags: tuple[str, ...] = (),
) -> Pod:
    """Start a pod with ``kubectl run``, and wait until it is ready."""
    pod = Pod(node, namespace, unique("pod"), environment or {})
    command = ["--command", "--", "sh", "-c", script] if script else []
    done = pod.call("run", pod.name, f"--image={image}", *flags, *command)
    assert done.returncode == 0, done.stderr
    waited = pod.call("wait", f"pod/{pod.name}", "--for=condition=Ready", "--timeout=60s")
    assert waited.returncode == 0, waited.stderr + pod.call("describe", "pod", pod.name).stdout
    return pod
