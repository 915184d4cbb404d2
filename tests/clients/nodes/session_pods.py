"""Pods on nodes whose kubelet is the stand-in of tests/clients/kubelet."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from harness import BINARIES, prepare, unique
from programs import Kubectl, Lines

from tests.support.certificates import CA

SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
"""The environment in which kubectl speaks SPDY."""
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
    def running(self, *arguments: str, stdin: IO[Any] | None = None) -> Iterator[Lines]:
        """Run a kubectl within the block, as Kubectl.following does. It reads from a pipe, if not from ``stdin``."""
        environment = {**os.environ, **self.kubectl._environment(), **self.environment}
        command = self.kubectl.command(*arguments)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, stdin=stdin or subprocess.PIPE, text=True, env=environment, **output) as process:  # type: ignore[call-overload]
            try:
                yield Lines(process)
            finally:
                process.kill()


@contextlib.contextmanager
def kubelet_in(folder: Path, *options: str) -> Iterator[tuple[Kubelet, int]]:
    """Run a stand-in within the block. Yields its process and port."""
    prepare("kubelet")
    certificate, key = CA("kubelets").files(folder, "kubelet")
    command = [str(BINARIES / "kubelet-standin"), str(certificate), str(key), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def create_pod(pod: Pod, port: int, *features: str) -> None:
    """Create the pod and its node, whose kubelet listens at this port of 127.0.0.1 and declares these features."""
    api = pod.kubectl.server.api()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": pod.name}}
    api.request("POST", "/api/v1/nodes", node).expect(201)
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoints = {"kubeletEndpoint": {"Port": port}}
    node["status"] = {"addresses": addresses, "daemonEndpoints": endpoints, "declaredFeatures": list(features)}
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
def pod_on(kubectl: Kubectl, environment: dict[str, str], port: int, *features: str) -> Iterator[Pod]:
    pod = Pod(kubectl, environment)
    create_pod(pod, port, *features)
    try:
        yield pod
    finally:
        kubectl("delete", "pod", pod.name, "--force", "--grace-period=0")
        kubectl("delete", "node", pod.name)
