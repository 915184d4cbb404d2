"""The command lines of a cluster's components, and the objects of its simulated nodes."""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from kubechronicle.ops import pki

# -- api ---------------------------------------------------------------------------------------------------------------
#
# The few requests that starting a cluster needs.

TIMEOUT = 10.0


class Api:
    """A client with the credentials of a kubeconfig. Raises OSError or http.client.HTTPException."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self._address = url.hostname or "", url.port or 443
        self._context = ssl.create_default_context(
            cadata=pki.decode_data(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:  # the library reads certificates from files only
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(pki.decode_data(user[key]))
            pair.flush()
            self._context.load_cert_chain(pair.name)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the decoded body of an answer."""
        connection = http.client.HTTPSConnection(*self._address, context=self._context, timeout=TIMEOUT)
        try:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


# -- components --------------------------------------------------------------------------------------------------------

CLUSTER_CIDR: Final = "10.244.0.0/16"
USERS: Final = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", ("system:masters",)),
}
"""The user and groups of each component."""

STAGES: Final = Path(__file__).parent / "stages.yaml"
"""The life of simulated nodes and pods. kwok has none by default."""
OF_CLUSTER: Final = tuple(USERS)


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    command: list[str]


def components(programs: Mapping[str, Path], kubeconfigs: Mapping[str, Path], pki: Path) -> list[Component]:
    """Return the components beside the server. ``pki``: the folder with the server's authority and keys."""
    return [
        Component("kube-controller-manager", _controller_manager(programs, kubeconfigs, pki)),
        Component("kube-scheduler", _scheduler(programs, kubeconfigs)),
        Component("kwok", _kwok(programs, kubeconfigs)),
    ]


def _controller_manager(programs: Mapping[str, Path], kubeconfigs: Mapping[str, Path], pki: Path) -> list[str]:
    file = kubeconfigs["kube-controller-manager"]
    return [
        str(programs["kube-controller-manager"]), f"--kubeconfig={file}", f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}", "--use-service-account-credentials", "--leader-elect=false",
        f"--service-account-private-key-file={pki / 'sa.key'}", f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--bind-address=127.0.0.1", "--secure-port=0", "--controllers=*,bootstrapsigner,tokencleaner",
    ]  # fmt: skip


def _scheduler(programs: Mapping[str, Path], kubeconfigs: Mapping[str, Path]) -> list[str]:
    file = kubeconfigs["kube-scheduler"]
    return [
        str(programs["kube-scheduler"]), f"--kubeconfig={file}", f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}", "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0",
    ]  # fmt: skip


def _kwok(programs: Mapping[str, Path], kubeconfigs: Mapping[str, Path]) -> list[str]:
    return [
        str(programs["kwok"]), f"--kubeconfig={kubeconfigs['kwok']}", "--manage-all-nodes=true",
        f"--cidr={CLUSTER_CIDR}", "--node-ip=127.0.0.1", "--node-lease-duration-seconds=40",
        f"--config={STAGES}",
    ]  # fmt: skip


def node(number: int) -> dict[str, Any]:
    """Return a simulated node: 8 CPUs, 32 GiB, 110 pods. kwok makes it and its pods ready."""
    name = f"node-{number}"
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok",
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": resources, "allocatable": resources},
    }
