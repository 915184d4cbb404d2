"""The API server of a real node: kubechronicle, or a real kube-apiserver to compare with.

Both listen on all addresses, announce the outer address of the node's place, and have their certificates in a folder
``pki`` under kubeadm's names.
"""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kubechronicle.ops import pki
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.real_node.place import SERVICES, Place
from kubechronicle.ops.development.real_node.programs import Unavailable
from kubechronicle.ops.development.server_process import ServerProcess, running

ISSUER = "https://kubernetes.default.svc.cluster.local"
READY_TIMEOUT = 180.0
SERVICE_ADDRESS = "10.96.0.1"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server. ``data_dir`` has the folder ``pki``; ``process`` is set for kubechronicle alone."""

    url: str
    data_dir: Path
    process: ServerProcess | None = None

    @property
    def pki(self) -> Path:
        return self.data_dir / "pki"

    def kubeconfig(self, path: Path, user: str, *groups: str) -> Path:
        """Write a kubeconfig with a new client certificate of the server's authority."""
        authority = pki.Pki(self.data_dir).authority()
        pair = pki.issue_client_certificate(authority, user, groups)
        ca = (self.pki / "ca.crt").read_bytes()
        pki.write_whole(path, pki.kubeconfig(server=self.url, ca=ca, user=user, pair=pair).encode(), mode=0o600)
        return path

    def client(self) -> httpx.Client:
        """Return a client as cluster administrator. Its paths are relative to the server."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        return httpx.Client(base_url=self.url, verify=context, timeout=60)


def apply(client: httpx.Client, objects: Sequence[Mapping[str, Any]], paths: Mapping[str, str]) -> None:
    """Create objects by server-side apply. ``paths``: collection of each kind, with {namespace}."""
    for value in objects:
        metadata = value["metadata"]
        collection = paths[value["kind"]].format(namespace=metadata.get("namespace", ""))
        answer = client.patch(
            f"{collection}/{metadata['name']}", params={"fieldManager": "real-node", "force": "true"},
            json=value, headers={"Content-Type": "application/apply-patch+yaml"},
        )  # fmt: skip
        answer.raise_for_status()


@contextlib.contextmanager
def our_server(home: Path, place: Place, arguments: Sequence[str] = ()) -> Iterator[ApiServer]:
    """Run a kubechronicle on an empty store, with the settings that it needs beside a kube-controller-manager."""
    [port] = reference.free_ports(1)
    settings = [
        "--advertise-address", place.outside, "--service-cluster-ip-range", SERVICES, "--controllers", "",
        "--kubelet-preferred-address-types", "InternalIP", "--enable-aggregator-routing=true",
    ]  # fmt: skip
    with running(ServerProcess(home / "data", arguments=[*settings, *arguments], port=port)) as server:
        yield ApiServer(f"https://{place.outside}:{port}", home / "data", server)


@contextlib.contextmanager
def real_server(home: Path, place: Place) -> Iterator[ApiServer]:
    """Run a real kube-apiserver with etcd on an empty store. Raises Unavailable."""
    try:
        apiserver, etcd = reference.programs()
    except reference.Unavailable as error:
        raise Unavailable(str(error)) from error
    data = home / "data"
    files = pki.Pki(data)
    addresses = [ipaddress.ip_address(address) for address in (place.outside, SERVICE_ADDRESS)]
    files.ensure(pki.serving_names(addresses=addresses))
    reference.write_key(files.directory / "sa.key")
    client, peer, secure = reference.free_ports(3)
    server = ApiServer(f"https://{place.outside}:{secure}", data)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reference.process(reference.etcd_command(etcd, data, client, peer), home / "etcd.log"))
        command = [str(apiserver), *_apiserver_flags(files, place, client, secure)]
        child = stack.enter_context(reference.process(command, home / "apiserver.log"))
        _wait_until_ready(server, child, home / "apiserver.log")
        yield server


def _apiserver_flags(files: pki.Pki, place: Place, etcd: int, secure: int) -> list[str]:
    """Return kube-apiserver's flags: those of kubeadm, where they matter."""
    folder = files.directory
    return [
        "--etcd-servers", f"http://127.0.0.1:{etcd}", "--secure-port", str(secure), "--bind-address", "0.0.0.0",
        "--advertise-address", place.outside, "--service-cluster-ip-range", SERVICES,
        "--tls-cert-file", str(folder / "apiserver.crt"), "--tls-private-key-file", str(folder / "apiserver.key"),
        "--client-ca-file", str(folder / "ca.crt"), "--authorization-mode", "Node,RBAC",
        "--enable-admission-plugins", "NodeRestriction", "--allow-privileged=true",
        "--service-account-issuer", ISSUER, "--service-account-key-file", str(folder / "sa.key"),
        "--service-account-signing-key-file", str(folder / "sa.key"),
        "--kubelet-preferred-address-types", "InternalIP",
        "--kubelet-client-certificate", str(folder / "apiserver-kubelet-client.crt"),
        "--kubelet-client-key", str(folder / "apiserver-kubelet-client.key"),
        "--requestheader-client-ca-file", str(folder / "front-proxy-ca.crt"),
        "--requestheader-allowed-names", "front-proxy-client", "--requestheader-username-headers", "X-Remote-User",
        "--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
        "--proxy-client-cert-file", str(folder / "front-proxy-client.crt"),
        "--proxy-client-key-file", str(folder / "front-proxy-client.key"), "--enable-aggregator-routing=true",
    ]  # fmt: skip


def _wait_until_ready(server: ApiServer, child: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_TIMEOUT
    with server.client() as client:
        while time.monotonic() < until and child.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if client.get("/readyz").status_code == 200:
                    return
            time.sleep(0.2)
    last = "".join(log.read_text(errors="replace").splitlines()[-1:])
    raise Unavailable(f"kube-apiserver did not become ready: {last}")
