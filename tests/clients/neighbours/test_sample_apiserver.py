"""Kubernetes' sample-apiserver behind an APIService, with etcd, killed and restarted under kubectl's eyes."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from harness import BINARIES, Server, eventually
from programs import Kubectl

from tests.clients.neighbours.conftest import free_port
from tests.support.certificates import CA

GROUP = "wardle.example.com"
NAME = f"v1alpha1.{GROUP}"
FLUNDER = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Flunder",
    "metadata": {"name": "one"},
    "spec": {"reference": "a"},
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class SampleApiserver:
    """The extension API server and its store. ``start`` and ``kill`` are about the former."""

    def __init__(self, folder: Path, server: Server, namespace: str) -> None:
        self.port, self._folder, self._process = free_port(), folder, None
        self.authority = CA("extensions")
        names = x509.SubjectAlternativeName([x509.DNSName(f"wardle.{namespace}.svc")])
        usage = [ExtendedKeyUsageOID.SERVER_AUTH]
        certificate, key = self.authority.files(folder, "wardle", usage=usage, extensions=[(names, False)])
        client, peer = free_port(), free_port()
        self._etcd = [
            str(BINARIES / "etcd"), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{peer}", "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        ]  # fmt: skip
        kubeconfig = str(server.kubeconfig)
        self._command = [
            str(BINARIES / "sample-apiserver"), "--etcd-servers", f"http://127.0.0.1:{client}",
            "--bind-address", "127.0.0.1", "--secure-port", str(self.port),
            "--tls-cert-file", str(certificate), "--tls-private-key-file", str(key),
            "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None

    @contextmanager
    def store(self) -> Iterator[None]:
        with (
            (self._folder / "etcd.log").open("wb") as log,
            subprocess.Popen(self._etcd, stdout=log, stderr=log) as etcd,
        ):
            try:
                yield
            finally:
                etcd.kill()

    def start(self) -> None:
        with (self._folder / "sample.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    server.api().namespace("neighbours")
    return Kubectl(str(BINARIES / "kubectl"), server, tmp_path, "neighbours")


@pytest.fixture
def sample(kubectl: Kubectl, tmp_path: Path) -> Iterator[SampleApiserver]:
    sample = SampleApiserver(tmp_path, kubectl.server, kubectl.namespace)
    service = {"name": "wardle", "namespace": kubectl.namespace}
    spec = {
        "group": GROUP,
        "version": "v1alpha1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "service": {**service, "port": sample.port},
        "caBundle": base64.b64encode(sample.authority.pem).decode(),
    }
    external = {"type": "ExternalName", "externalName": "localhost"}
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": external},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME}, "spec": spec},
    ]
    with ExitStack() as stack:
        stack.enter_context(sample.store())
        stack.callback(sample.kill)
        sample.start()
        kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        stack.callback(kubectl, "delete", f"apiservice/{NAME}", "service/wardle")
        kubectl("wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=60s")
        eventually(lambda: "flunders" in kubectl("api-resources", "--api-group", GROUP), "the group is discovered")
        yield sample


def freshness(kubectl: Kubectl) -> str:
    """Return the freshness of the group's version in aggregated discovery."""
    groups = kubectl.server.api().request("GET", "/apis", headers={"Accept": AGGREGATED}).json()["items"]
    (found,) = [group for group in groups if group["metadata"]["name"] == GROUP]
    return str(next(each["freshness"] for each in found["versions"] if each["version"] == "v1alpha1"))


def test_kubectl_works_with_it(kubectl: Kubectl, sample: SampleApiserver) -> None:
    with kubectl.following("get", "flunders", "-w", "-o", "name") as lines:
        kubectl("apply", "-f", "-", stdin=json.dumps(FLUNDER))
        lines.until(lambda line: line.endswith("/one"))
        changed = {**FLUNDER, "spec": {"reference": "b"}}
        assert "configured" in kubectl("apply", "-f", "-", stdin=json.dumps(changed))
        lines.until(lambda line: line.endswith("/one"))
        applied = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(changed))
        assert "serverside-applied" in applied
    assert kubectl("get", "flunder", "one", "-o", "jsonpath={.spec.reference}") == "b"
    assert "one" in kubectl("get", "flunders")
    explained = kubectl("explain", "flunder.spec")
    assert "reference\t<string>" in explained
    assert "GROUP:      wardle.example.com" in explained
    other = {**FLUNDER, "metadata": {"name": "two"}, "spec": {"reference": "a", "referenceType": "Fischer", "x": 1}}
    assert "unknown field" in kubectl.refused("create", "--validate=strict", "-f", "-", stdin=json.dumps(other))
    assert "yes" in kubectl("auth", "can-i", "delete", f"flunders.{GROUP}")
    kubectl("delete", "flunder", "one")
    assert "NotFound" in kubectl.refused("get", "flunder", "one")


def test_it_is_killed_and_restarted(kubectl: Kubectl, sample: SampleApiserver) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(FLUNDER))
    with kubectl.following("get", "flunders", "-w", "-o", "name") as lines:
        lines.until(lambda line: line.endswith("/one"))
        sample.kill()
    eventually(lambda: "False" in kubectl("get", "apiservice", NAME), "the condition is False")
    assert "unable to handle the request" in kubectl.refused("get", "--raw", f"/apis/{GROUP}/v1alpha1/flunders")
    # Only its group suffers.
    eventually(lambda: freshness(kubectl) == "Stale", "its discovery is stale")
    assert "deployments" in kubectl("api-resources", "--api-group", "apps")
    kubectl("get", "namespaces,services,configmaps")
    kubectl("create", "configmap", "meanwhile")
    assert "KIND:       Pod" in kubectl("explain", "pod")
    assert kubectl.server.api().request("GET", "/readyz").status == 200
    kubectl("delete", "configmap", "meanwhile")
    sample.start()
    kubectl("wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=60s")
    eventually(lambda: freshness(kubectl) == "Current", "its discovery is fresh")
    assert kubectl("get", "flunder", "one", "-o", "jsonpath={.spec.reference}") == "a"
    kubectl("delete", "flunder", "one")


def test_the_history_says_that_its_writes_are_elsewhere(kubectl: Kubectl, sample: SampleApiserver) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(FLUNDER))
    command = [*kubectl.server.command(), "log", "flunder", "one", "-n", kubectl.namespace]
    done = subprocess.run(
        [*command, "--kubeconfig", str(kubectl.server.kubeconfig)], capture_output=True, text=True, check=False
    )
    assert "this server's log holds none of their changes" in done.stderr
    kubectl("delete", "flunder", "one")
