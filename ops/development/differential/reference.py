"""The two servers of a run: a real kube-apiserver with etcd, and a kubechronicle with the same settings."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.api.kinds import RELEASE, SERVED
from kubechronicle.ops.cluster import programs as programs_of_cluster
from kubechronicle.ops.development.differential.transport import Connection, Target
from kubechronicle.ops.development.server_process import ServerProcess, StartError, running

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "reference"
ETCD = "v3.6.16"
ETCD_PACKAGE, APISERVER_PACKAGE = "go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver"
SERVICE_RANGE = "10.96.0.0/16"
CALLER = "bench-admin"  # the user of the recorded cases
READY_TIMEOUT = 120.0
BUILD_TIMEOUT = 3600.0  # a first build on a small machine


class Unavailable(Exception):
    """There is no kube-apiserver to compare with; the message says why."""


# Programs


def programs() -> tuple[Path, Path]:
    """Return kube-apiserver and etcd: from .cache/reference, from PATH, or built. Raises Unavailable."""
    found = [CACHE / name if (CACHE / name).is_file() else shutil.which(name) for name in ("kube-apiserver", "etcd")]
    if all(found) and version_of(Path(str(found[0]))).startswith(f"v{SERVED}."):
        return Path(str(found[0])), Path(str(found[1]))
    try:
        build()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise Unavailable(
            f"kube-apiserver {RELEASE} could not be built: {str(detail).strip().splitlines()[-1]}"
        ) from error
    return CACHE / "kube-apiserver", CACHE / "etcd"


def etcd() -> Path:
    """Return etcd from .cache/reference, or build it. Raises Unavailable."""
    if not (CACHE / "etcd").is_file():
        try:
            build(only="etcd")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            raise Unavailable(f"etcd could not be built: {str(detail).strip().splitlines()[-1]}") from error
    return CACHE / "etcd"


def version_of(program: Path) -> str:
    return output_of(program, "--version").strip().rpartition(" ")[2]


def output_of(program: Path, flag: str) -> str:
    return subprocess.run([program, flag], capture_output=True, text=True, check=False).stdout


def build(only: str = "") -> None:
    """Build both programs from their Go modules, or one of them. Another process that builds is waited for."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        go = find_go()
        if only in ("", "etcd") and not (CACHE / "etcd").is_file():
            module("etcd", ETCD_PACKAGE, f"module reference\n\ngo 1.26.0\n\nrequire {ETCD_PACKAGE} {ETCD}\n")
            compile_program(go, "etcd", ETCD_PACKAGE, "")
        if only in ("", "kube-apiserver") and not (CACHE / "kube-apiserver").is_file():
            module("kube-apiserver", APISERVER_PACKAGE, kubernetes_module(go))
            package = "k8s.io/component-base/version"
            major, minor, _ = RELEASE.removeprefix("v").split(".")
            flags = f"-X {package}.gitVersion={RELEASE} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
            compile_program(go, "kube-apiserver", APISERVER_PACKAGE, flags)


def find_go() -> str:
    """Return the go command that the real-client tests use; it is fetched if there is none."""
    process = subprocess.run(
        [ROOT / "tests" / "clients" / "prepare.sh", "go"],
        capture_output=True, text=True, check=True, timeout=BUILD_TIMEOUT, env=os.environ | {"PYTHON": sys.executable},
    )  # fmt: skip
    return process.stdout.strip()


def kubernetes_module(go: str) -> str:
    """Return a go.mod that requires k8s.io/kubernetes."""
    return programs_of_cluster.kubernetes_module(go, CACHE)


def module(name: str, package: str, text: str) -> None:
    folder = CACHE / "src" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(text)
    (folder / "tools.go").write_text(f'//go:build tools\n\npackage tools\n\nimport _ "{package}"\n')


def go_environment() -> dict[str, str]:
    made = os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "auto"}
    if not os.environ.get("HOME"):
        made |= {"GOPATH": str(ROOT / ".cache" / "go"), "GOCACHE": str(ROOT / ".cache" / "go" / "build")}
    return made


def compile_program(go: str, name: str, package: str, flags: str) -> None:
    print(f"differential: building {name} into {CACHE} (minutes at the first time)", flush=True)
    folder = CACHE / "src" / name
    for command in (
        [go, "mod", "tidy"],
        [go, "build", "-ldflags", f"-s -w {flags}", "-o", str(CACHE / f".{name}.new"), package],
    ):
        subprocess.run(
            command, cwd=folder, env=go_environment(), capture_output=True, text=True, check=True, timeout=BUILD_TIMEOUT
        )
    (CACHE / f".{name}.new").rename(CACHE / name)


# Servers


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def reference_server(users: str = "", flags: Sequence[str] = ()) -> Iterator[Target]:
    """Run kube-apiserver and etcd on an empty store in a temporary folder. ``users``: more lines of its token file.

    ``flags``: further flags, such as --emulated-version=1.33.
    """
    apiserver, etcd = programs()
    with tempfile.TemporaryDirectory(prefix="kubechronicle-reference-") as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        client, peer, secure = free_ports(3)
        target = Target(f"https://127.0.0.1:{secure}", secrets.token_hex(16))
        (home / "tokens.csv").write_text(f'{target.token},{CALLER},{CALLER},"system:masters"\n{users}')
        write_key(home / "sa.key")
        stack.enter_context(process(etcd_command(etcd, home, client, peer), home / "etcd.log"))
        child = stack.enter_context(
            process([*apiserver_command(apiserver, home, client, secure), *flags], home / "apiserver.log")
        )
        wait_until_ready(target, child, home / "apiserver.log")
        yield replace(target, pid=child.pid)


def write_key(path: Path) -> None:
    """Write a new key for the tokens of service accounts."""
    key = rsa.generate_private_key(65537, 2048)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def etcd_command(etcd: Path, home: Path, client: int, peer: int) -> list[str]:
    url = f"http://127.0.0.1:{peer}"
    return [
        str(etcd), "--data-dir", str(home / "etcd"), "--unsafe-no-fsync", "--log-level", "error",
        "--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}",
        "--listen-peer-urls", url, "--initial-advertise-peer-urls", url, "--initial-cluster", f"default={url}",
        "--quota-backend-bytes", str(8 << 30),
    ]  # fmt: skip


def apiserver_command(apiserver: Path, home: Path, client: int, secure: int) -> list[str]:
    """Return the command with the settings of the recordings."""
    issuer = "https://kubernetes.default.svc.cluster.local"
    return [
        str(apiserver), "--etcd-servers", f"http://127.0.0.1:{client}", "--secure-port", str(secure),
        "--bind-address", "127.0.0.1", "--cert-dir", str(home / "certs"), "--token-auth-file", str(home / "tokens.csv"),
        "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
        "--service-cluster-ip-range", SERVICE_RANGE, "--service-account-issuer", issuer,
        "--service-account-key-file", str(home / "sa.key"), "--service-account-signing-key-file", str(home / "sa.key"),
        "--allow-privileged=true",
        "--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000",
    ]  # fmt: skip


def wait_until_ready(target: Target, child: subprocess.Popen[bytes], log: Path) -> None:
    connection, until = Connection(target), time.monotonic() + READY_TIMEOUT
    while time.monotonic() < until and child.poll() is None:
        if connection.ask("GET", "/readyz").status == 200:
            connection.close()
            return
        time.sleep(0.2)
    raise Unavailable("kube-apiserver did not start: " + "".join(log.read_text(errors="replace").splitlines()[-1:]))


@contextlib.contextmanager
def our_server(users: str = "", flags: Sequence[str] = ()) -> Iterator[Target]:
    """Run a kubechronicle on an empty store with the reference's settings. ``users``, ``flags``: as above."""
    with tempfile.TemporaryDirectory(prefix="kubechronicle-differential-") as directory:
        home = Path(directory)
        token = secrets.token_hex(16)
        (home / "tokens.csv").write_text(f'{token},{CALLER},{CALLER},"system:masters"\n{users}')
        arguments = [
            "--token-auth-file",
            str(home / "tokens.csv"),
            "--controllers",
            "",
            "--service-cluster-ip-range",
            SERVICE_RANGE,
            *flags,
        ]
        with running(ServerProcess(home / "data", arguments=arguments)) as server:
            yield Target(server.url, token, server.pid)


def check_version(connection: Connection) -> None:
    """Raise Unavailable for a server of another minor version."""
    version = connection.get_json("/version")["gitVersion"]
    if not version.startswith(f"v{SERVED}."):
        raise Unavailable(f"{connection.target.url} is Kubernetes {version}; the comparison is with v{SERVED}")


__all__ = ["StartError", "Unavailable", "check_version", "our_server", "reference_server"]
