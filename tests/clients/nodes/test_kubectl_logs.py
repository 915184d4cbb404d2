"""kubectl logs and kubectl get --raw through proxies, with a stand-in as the kubelet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from harness import unique
from programs import Kubectl

from tests.support.certificates import CA
from tests.support.nodes.kubelet_stand_in import KubeletStandIn


class Kubelet:
    """A stand-in in a thread."""

    def __init__(self, folder: Path) -> None:
        self.stand_in = KubeletStandIn()
        self._files = CA("kubelets").files(folder, "kubelet", usage=None)
        self._started = threading.Event()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        self._thread = threading.Thread(target=trio.run, args=(self._main,), daemon=True)
        self._thread.start()
        assert self._started.wait(60)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                await self.stand_in.start(nursery, *self._files)
                self._started.set()
                await trio.sleep_forever()

    def say(self, line: bytes) -> None:
        """Write a line of a followed log."""
        trio.from_thread.run(self.stand_in.follow.send, line, trio_token=self._token)

    def stop(self) -> None:
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)
            self._thread.join()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    yield kubelet
    kubelet.stop()


@pytest.fixture
def pod(kubectl: Kubectl, kubelet: Kubelet) -> Iterator[str]:
    name, api = unique("logs"), kubectl.server.api()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    api.request("POST", "/api/v1/nodes", node).expect(201)
    endpoints = {"kubeletEndpoint": {"Port": kubelet.stand_in.port}}
    node["status"] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoints}
    api.request("PUT", f"/api/v1/nodes/{name}/status", node).expect(200)
    containers = [{"name": each, "image": "i"} for each in ("c", "broken")]
    spec = {"nodeName": name, "containers": containers, "automountServiceAccountToken": False}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    api.request("POST", f"/api/v1/namespaces/{kubectl.namespace}/pods", body).expect(201)
    yield name
    kubectl("delete", "pod", name, "--force", "--grace-period=0")
    kubectl("delete", "node", name)


def test_logs(kubectl: Kubectl, kubelet: Kubelet, pod: str) -> None:
    assert kubectl.call("logs", pod, "-c", "c").stdout == "one\ntwo\nthree\n"
    assert kubectl.call("logs", pod, "-c", "c", "--tail=1", "--since=5m", "--timestamps").stdout == "three\n"
    assert kubectl.call("logs", pod, "-c", "c", "--previous", "--limit-bytes=100").stdout == "before\n"
    queries = [query for _, _, query in kubelet.stand_in.asked]
    assert queries == [
        "",
        "sinceSeconds=300&tailLines=1&timestamps=true",
        "limitBytes=100&previous=true",
    ]


def test_errors_of_logs(kubectl: Kubectl, pod: str) -> None:
    failed = kubectl.call("logs", pod, "-c", "broken")
    assert failed.returncode == 1
    assert "Error from server (BadRequest): container is waiting to start" in failed.stderr
    failed = kubectl.call("logs", pod, "-c", "unknown")
    assert f"container unknown is not valid for pod {pod}" in failed.stderr


def test_a_followed_log_ends_with_its_kubelet(kubectl: Kubectl, kubelet: Kubelet, pod: str) -> None:
    with kubectl.following("logs", "-f", pod, "-c", "c") as lines:
        lines.until(lambda line: "three" in line)
        kubelet.say(b"later\n")
        lines.until(lambda line: "later" in line)
        kubelet.stop()
        while lines.next() is not None:
            pass


def test_loopback_is_not_proxied_to(kubectl: Kubectl, pod: str) -> None:
    failed = kubectl.call("get", "--raw", f"/api/v1/nodes/{pod}/proxy/stats/summary")
    assert failed.returncode == 1
    assert "address not allowed" in failed.stderr
