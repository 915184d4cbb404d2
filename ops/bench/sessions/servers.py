"""The ends of measured sessions: API servers with a pod each, and the stand-in for a kubelet."""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.differential.transport import Connection, Target
from kubechronicle.ops.development.server_process import (
    ServerProcess,
    Stat,
    cpu_seconds,
    descendants,
    memory_mib,
    running,
)

ROOT: Final = Path(__file__).resolve().parents[3]
BINARIES: Final = ROOT / ".cache" / "bin"
NODE: Final = "bench-sessions"
GETS: Final = 600
"""Requests of a measured quantile."""
READY: Final = 120.0
"""Seconds for all sessions to begin."""


class Beside(NamedTuple):
    """One round beside many sessions. ``quiet`` and ``loud``: p50 and p99 of GETs without them and with them, in ms;
    ``memory``: MiB of the server before, at the begin and at the end."""

    quiet: tuple[float, float]
    loud: tuple[float, float]
    cores: float
    memory: tuple[float, float, float]
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A running API server. ``processes``: its own, without its store; ``home``: a folder for files."""

    name: str
    target: Target
    home: Path
    processes: Callable[[], list[Stat]]

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        return cpu_seconds(self.processes())

    def kubectl(self, *arguments: str) -> list[str]:
        """Return the command of a kubectl with these arguments."""
        return [str(BINARIES / "kubectl"), "--kubeconfig", str(self.home / "kubeconfig"), *arguments]

    def create_pod(self, port: int) -> None:
        """Create a pod and its node, whose kubelet listens at this port of 127.0.0.1."""
        (self.home / "kubeconfig").write_text(json.dumps(_kubeconfig(self.target)))
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        pods = "/api/v1/namespaces/default/pods"
        containers = [{"name": "c", "image": "i", "stdin": True}]
        pod = {"nodeName": NODE, "containers": containers, "automountServiceAccountToken": False}
        account = {"metadata": {"name": "default"}}
        with contextlib.closing(Connection(self.target)) as connection:
            _send(connection, "POST", "/api/v1/namespaces/default/serviceaccounts", account)
            _send(connection, "POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
            _send(connection, "PUT", f"/api/v1/nodes/{NODE}/status", {"metadata": {"name": NODE}, "status": status})
            _send(connection, "POST", pods, {"metadata": {"name": NODE}, "spec": pod})
            state = {"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
            status = {"phase": "Running", "containerStatuses": [state | {"state": {"running": {}}}]}
            _send(
                connection, "PUT", f"{pods}/{NODE}/status", {"metadata": {"name": NODE}, "spec": pod, "status": status}
            )

    def beside(self, number: int) -> Beside:
        """Measure GETs without sessions, and then beside so many sessions of cat and as many followed logs, each with
        a line three times a second."""
        quiet, before = self._quantiles(), memory_mib(self.processes())
        where = ["--kubeconfig", str(self.home / "kubeconfig"), "--namespace", "default", "--pod", NODE]
        command = [str(BINARIES / "informers"), "sessions", *where, f"--commands={number}", f"--logs={number}"]
        command += ["--out", str(self.home / "sessions.json")]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if "ready" in line:
                        break
                held, began, used = memory_mib(self.processes()), time.monotonic(), self.cpu()
                loud = self._quantiles()
                cores = (self.cpu() - used) / (time.monotonic() - began)
                memory = (before, held, memory_mib(self.processes()))
                report = json.loads(process.communicate("\n", timeout=READY)[0].splitlines()[-1])
            finally:
                process.kill()
        return Beside(quiet, loud, cores, memory, report["failed"])

    def _quantiles(self) -> tuple[float, float]:
        taken = []
        with contextlib.closing(Connection(self.target)) as connection:
            for _ in range(GETS):
                began = time.perf_counter()
                connection.ask("GET", "/api/v1/namespaces/default")
                taken.append((time.perf_counter() - began) * 1000)
        taken.sort()
        return taken[GETS // 2], taken[int(GETS * 0.99)]


def _kubeconfig(target: Target) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": target.url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": target.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "current-context": "c",
    }


def _send(connection: Connection, method: str, path: str, body: Mapping[str, Any]) -> None:
    answer = connection.ask(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if answer.status not in (200, 201, 409):
        raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:300]!r}")


def prepare(*programs: str) -> None:
    """Build client programs into .cache/bin."""
    subprocess.run([ROOT / "tests" / "clients" / "prepare.sh", *programs], check=True)


@contextlib.contextmanager
def our_side(name: str, home: Path, *, tree: Path | None = None) -> Iterator[Side]:
    """Run a server of this checkout, or of the one in ``tree``."""
    home.mkdir(mode=0o755)
    token = secrets.token_hex(16)
    (home / "tokens.csv").write_text(f'{token},bench,bench,"system:masters"\n')
    environment = {"PYTHONPATH": str(tree.resolve())} if tree else None
    arguments = ["--token-auth-file", str(home / "tokens.csv")]
    process = ServerProcess(home / "data", arguments=arguments, environment=environment)
    with running(process):
        yield Side(name=name, target=Target(process.url, token), home=home, processes=process.processes)


@contextlib.contextmanager
def reference_side(home: Path) -> Iterator[Side]:
    """Run a kube-apiserver with its etcd."""
    home.mkdir(mode=0o755)
    with reference.reference_server() as target:
        yield Side(name="kube-apiserver", target=target, home=home, processes=lambda: descendants(target.pid))


@contextlib.contextmanager
def kubelet(home: Path) -> Iterator[int]:
    """Run the stand-in, and yield its port."""
    certificate, key = _certificate(home)
    command = [str(BINARIES / "kubelet-standin"), str(certificate), str(key)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _certificate(home: Path) -> tuple[Path, Path]:
    """Write the certificate that a kubelet signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubelet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .sign(key, SHA256())
    )
    files = home / "kubelet.crt", home / "kubelet.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
