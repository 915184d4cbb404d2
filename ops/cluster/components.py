"""The command lines of a cluster's components."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kubechronicle.http.outgoing.kubeconfig import read_kubeconfig
from kubechronicle.http.outgoing.remote_server import load_credentials
from kubechronicle.ops.server.simulation.simulated import STAGES

# -- api ---------------------------------------------------------------------------------------------------------------
#
# The few requests that starting a cluster needs.

TIMEOUT = 10.0


class Api:
    """A client with the credentials of a kubeconfig. Raises OSError or http.client.HTTPException."""

    def __init__(self, kubeconfig: Path) -> None:
        server = read_kubeconfig(kubeconfig)
        url = urlsplit(server.url)
        self._address = url.hostname or "", url.port or 443
        self._context = load_credentials(server).context

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

OF_CLUSTER: Final = tuple(USERS)
OURS: Final = (sys.executable, "-P", "-c", "import sys; from kubechronicle.ops.cli import main; sys.exit(main())")
"""Runs `kubechronicle` with the arguments that follow."""


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    command: list[str]


def components(programs: Mapping[str, Path], kubeconfigs: Mapping[str, Path], pki: Path) -> list[Component]:
    """Return those components beside the server of which there is a program.

    ``pki``: the folder with the server's authority and keys.
    """
    commands: dict[str, Callable[[], list[str]]] = {
        "kube-controller-manager": lambda: _controller_manager(programs, kubeconfigs, pki),
        "kube-scheduler": lambda: _scheduler(programs, kubeconfigs),
        "kwok": lambda: _kwok(programs, kubeconfigs),
    }
    return [Component(name, command()) for name, command in commands.items() if name in programs]


def page(kubeconfig: Path, port: int) -> Component:
    """Return the web page, which prints its address. ``port``: 0 for a free one."""
    flags = [f"--kubeconfig={kubeconfig}", f"--port={port}", "--no-browser"]
    return Component("ui", [*OURS, "ui", *flags])


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
