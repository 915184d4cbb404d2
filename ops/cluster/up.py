"""`kubechronicle up`: a whole cluster on this machine, until it is stopped by Ctrl-C.

    kubechronicle up                 three simulated nodes, data in ./cluster
    kubechronicle up --nodes 10 --programs ~/bin

It runs `kubechronicle serve` as a process of its own, which simulates nodes, binds pods, and lets them become Running;
nothing runs in them. Only kube-controller-manager turns a Deployment into pods. If that is not there, it is built while
the cluster runs, and started then. kube-scheduler takes part if it is there, and kwok if it is chosen.

Each component logs to DIR/logs. If one ends, the others are stopped, and its last line of log is shown.
"""

from __future__ import annotations

import argparse
import http.client
import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from kubechronicle.api.simulation.scheduling import new_node
from kubechronicle.http.outgoing.kubeconfig import read_kubeconfig
from kubechronicle.http.outgoing.remote_server import load_credentials
from kubechronicle.ops import pki, terminal
from kubechronicle.ops.addresses import try_port
from kubechronicle.ops.cluster.builds import Builds, Say
from kubechronicle.ops.cluster.programs import find, find_or_build
from kubechronicle.ops.data_dir import make_data_dir
from kubechronicle.ops.errors import OperatorError
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


READY_TIMEOUT: Final = 120.0
"""Seconds until the nodes are ready."""
STOP_TIMEOUT: Final = 40.0
"""Seconds for a component to stop before it is killed."""
PAUSE: Final = 0.25
LOOPBACK: Final = ipaddress.ip_address("127.0.0.1")
MOST_NODES: Final = 1000
MANAGER, SCHEDULER, KWOK = "kube-controller-manager", "kube-scheduler", "kwok"
WITHOUT_MANAGER: Final = "Deployments, StatefulSets, DaemonSets and Jobs get no pods"
DEPLOYMENT: Final = "create deployment web --image nginx --replicas 3"
POD: Final = "run web --image nginx"
_URL: Final = re.compile(r"^http://\S+$", re.MULTILINE)
_READY: Final = re.compile(rb"kubechronicle is ready at (\S+?);")


async def run(arguments: argparse.Namespace) -> None:
    """Run the cluster until SIGINT or SIGTERM. Raise OperatorError."""
    if not 0 < arguments.nodes <= MOST_NODES:
        raise OperatorError(f"--nodes: must be between 1 and {MOST_NODES}, got {arguments.nodes}")
    out = terminal.stdout()

    def say(line: str) -> None:
        out.line(line)
        out.flush()

    given, folder = _folders(arguments)
    try_port(LOOPBACK, arguments.secure_port)  # before anything that takes long
    if not arguments.no_ui:
        try_port(LOOPBACK, arguments.ui_port, flag="--ui-port")
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_at_signal, signals, nursery.cancel_scope)
            await _start(arguments, SimulatedCluster(folder, nursery), given, say)


async def _start(arguments: argparse.Namespace, cluster: SimulatedCluster, given: Path | None, say: Say) -> None:
    """Start the parts that are there or were chosen, then build and start the missing one."""
    chosen = [SCHEDULER] * arguments.kube_scheduler + [KWOK] * arguments.kwok
    programs = await trio.to_thread.run_sync(find, given, [MANAGER, SCHEDULER, *chosen])
    if any(name not in programs for name in chosen):
        if arguments.no_build:
            missing = next(name for name in chosen if name not in programs)
            raise OperatorError(f"--{missing}: there is no such program; put it on PATH or into --programs")
        programs |= await _build(given, chosen, say)
    await cluster.start_server(arguments.secure_port, _flags_of_server(arguments, programs))
    say("the API server is ready")
    for component in cluster.components(programs):
        await cluster.start(component)
    if arguments.kwok:
        await cluster.make_nodes(arguments.nodes)
    await cluster.wait_for_nodes(arguments.nodes)
    managed = MANAGER in programs
    say(f"{arguments.nodes} simulated nodes are ready; stop the cluster with Ctrl-C, and try:")
    say(f"  export KUBECONFIG={cluster.kubeconfig}")
    say(f"  kubectl {DEPLOYMENT if managed else POD}")
    say("  kubectl get pods --watch")
    if not arguments.no_ui:
        url = await cluster.start_page(arguments.ui_port)
        say(f"the page that tells the history: {url}")
        if not arguments.no_open and _has_display():
            await trio.to_thread.run_sync(webbrowser.open, url)
    if managed:
        return
    if arguments.no_build:
        say(f"there is no {MANAGER}: {WITHOUT_MANAGER}. Put it on PATH or into --programs, or leave out --no-build")
        return
    say(f"{MANAGER} is being built, while everything else runs. Until then, {WITHOUT_MANAGER}")
    try:
        programs = await _build(given, [MANAGER], say)
    except OperatorError as error:
        say(f"{error}; the cluster runs on without it")
        return
    for component in cluster.components(programs):
        await cluster.start(component)
    say(f"{MANAGER} runs; try: kubectl {DEPLOYMENT}")


async def _build(given: Path | None, names: Sequence[str], say: Say) -> dict[str, Path]:
    """Find or build the programs. A cancellation ends the builds. OperatorError."""
    builds = Builds(say)
    try:
        return await trio.to_thread.run_sync(find_or_build, given, builds, names, abandon_on_cancel=True)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(builds.stop)


def _flags_of_server(arguments: argparse.Namespace, programs: Mapping[str, Path]) -> list[str]:
    flags = [] if arguments.no_ui else ["--enable-ui"]
    if arguments.database_url:
        flags.append(f"--database-url={arguments.database_url}")
    if MANAGER in programs:
        flags.append("--controllers=")  # it has these loops, too
    if not arguments.kwok:
        flags += [
            f"--simulated-nodes={arguments.nodes}",
            f"--simulated-scheduler={str(SCHEDULER not in programs).lower()}",
        ]
    return flags


def _has_display() -> bool:
    """Tell whether a browser can be opened."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def _folders(arguments: argparse.Namespace) -> tuple[Path | None, Path]:
    """Return the folder of --programs, and that of the cluster, which is made."""
    folder = Path(arguments.data_dir).expanduser().absolute()
    try:
        make_data_dir(folder)
        (folder / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise OperatorError(f"--data-dir: cannot make {folder / 'logs'}: {error.strerror}") from None
    return Path(arguments.programs).expanduser() if arguments.programs else None, folder


async def _stop_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()
        return


class SimulatedCluster:
    """The processes of a cluster, as tasks of one nursery."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._api: Api | None = None

    async def start_server(self, port: int, flags: Sequence[str]) -> None:
        """Start `kubechronicle serve`, and return when it is ready. ``flags``: further ones."""
        command = [
            *OURS, "serve", "--data-dir", str(self._folder), "--secure-port", str(port),
            "--bind-address", str(LOOPBACK), "--service-cluster-ip-range", "10.96.0.0/16", *flags,
        ]  # fmt: skip
        output = self._log("kube-apiserver")
        output.write_bytes(b"")
        await self.start(Component("kube-apiserver", command))
        await self._until(lambda: trio.to_thread.run_sync(_is_ready, output), "the API server")
        self._api = Api(pki.Pki(self._folder).kubeconfig_file)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return pki.Pki(self._folder).kubeconfig_file

    def components(self, programs: Mapping[str, Path]) -> list[Component]:
        """Return the components of these programs, each with a kubeconfig of its own."""
        own, written = pki.Pki(self._folder), {}
        authority = own.authority()
        ca, server = own.ca_file.read_bytes(), read_kubeconfig(own.kubeconfig_file).url
        for name, (user, groups) in USERS.items():
            pair = pki.issue_client_certificate(authority, user, list(groups))
            text = pki.kubeconfig(server=server, ca=ca, user=user, pair=pair)
            written[name] = self._folder / f"{name}.kubeconfig"
            pki.write_whole(written[name], text.encode(), mode=0o600)
        return components(programs, written, own.directory)

    async def start_page(self, port: int) -> str:
        """Start the web page, and return its address."""
        output, found = self._log("ui"), list[str]()
        output.write_bytes(b"")
        await self.start(page(self.kubeconfig, port))

        async def printed() -> bool:
            found.extend(_URL.findall(output.read_text(errors="replace")))
            return bool(found)

        await self._until(printed, "the web page")
        return found[0]

    async def start(self, component: Component) -> None:
        """Start a component, which is stopped with the cluster. Its end stops the cluster."""
        await self._nursery.start(self._run, component)

    async def _run(self, component: Component, *, task_status: trio.TaskStatus[None]) -> None:
        file = self._log(component.name)
        with file.open("ab") as output:
            process = await trio.lowlevel.open_process(
                component.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        task_status.started()
        try:
            code = await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await _stop(process)
        lines = file.read_text(errors="replace").strip().splitlines()
        raise OperatorError(
            f"{component.name} has ended with code {code}: {lines[-1] if lines else 'no output'} ({file})"
        )

    def _log(self, name: str) -> Path:
        return self._folder / "logs" / f"{name}.log"

    async def make_nodes(self, count: int) -> None:
        """Make the nodes that are missing."""
        for number in range(count):
            await self._until(partial(self._has_node, number), f"node-{number}")

    async def wait_for_nodes(self, count: int) -> None:
        """Return when so many nodes are ready."""
        await self._until(lambda: self._are_ready(count), "the nodes")

    async def _has_node(self, number: int) -> bool:
        status, _ = await self._ask("POST", "/api/v1/nodes", new_node(number))
        return status in (201, 409)

    async def _are_ready(self, count: int) -> bool:
        status, body = await self._ask("GET", "/api/v1/nodes")
        if status != 200:
            return False
        conditions = [
            condition
            for item in body["items"]
            for condition in item["status"].get("conditions") or ()
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return len(conditions) >= count

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        assert self._api is not None
        try:
            return await trio.to_thread.run_sync(self._api.ask, method, path, body)
        except (OSError, http.client.HTTPException):
            return 0, {}

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        with trio.move_on_after(READY_TIMEOUT):
            while True:
                if await condition():
                    return
                await trio.sleep(PAUSE)
        raise OperatorError(f"{what}: not ready after {READY_TIMEOUT:.0f} s; see the files in {self._folder / 'logs'}")


def _is_ready(output: Path) -> bool:
    return _READY.search(output.read_bytes()) is not None


async def _stop(process: trio.Process) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with trio.move_on_after(STOP_TIMEOUT):
        await process.wait()
        return
    process.kill()
    await process.wait()
