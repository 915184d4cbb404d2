"""`kubechronicle up`: a whole cluster on this machine, until it is stopped by Ctrl-C.

    kubechronicle up                 three simulated nodes, data in ./cluster
    kubechronicle up --nodes 10 --programs ~/bin

It runs `kubechronicle serve`, kube-controller-manager, kube-scheduler and kwok as processes of its own. Nodes and the
containers of pods are simulated by kwok: a pod becomes Running, and nothing runs in it. Each component logs to
DIR/logs. If one ends, the others are stopped, and its last line of log is shown.
"""

from __future__ import annotations

import argparse
import http.client
import ipaddress
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import yaml

from kubechronicle.ops import pki, terminal
from kubechronicle.ops.cluster.builds import Builds, Say
from kubechronicle.ops.cluster.components import USERS, Api, Component, components, node
from kubechronicle.ops.cluster.programs import find_or_build
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.listening.addresses import try_port

READY_TIMEOUT: Final = 120.0
"""Seconds until the nodes are ready."""
STOP_TIMEOUT: Final = 40.0
"""Seconds for a component to stop before it is killed."""
PAUSE: Final = 0.25
LOOPBACK: Final = ipaddress.ip_address("127.0.0.1")
MOST_NODES: Final = 1000
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
    try_port(LOOPBACK, arguments.secure_port)  # before the builds, which may take long
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(folder, nursery)
            nursery.start_soon(_stop_at_signal, signals, nursery.cancel_scope)
            programs = await _programs(given, say)
            await cluster.start_server(arguments.secure_port, _flags_of_server(arguments))
            say("the API server is ready")
            kubeconfigs = cluster.write_kubeconfigs()
            for component in components(programs, kubeconfigs, pki.Pki(folder).directory):
                await cluster.start(component)
            await cluster.make_nodes(arguments.nodes)
            say(f"{arguments.nodes} simulated nodes are ready; stop the cluster with Ctrl-C, and try:")
            say(f"  export KUBECONFIG={pki.Pki(folder).kubeconfig_file}")
            say("  kubectl create deployment web --image nginx --replicas 3")
            say("  kubectl get pods --watch")
            say("  kubechronicle ui")


async def _programs(given: Path | None, say: Say) -> dict[str, Path]:
    """Find or build the programs. A cancellation ends the builds. OperatorError."""
    builds = Builds(say)
    try:
        return await trio.to_thread.run_sync(find_or_build, given, builds, abandon_on_cancel=True)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(builds.stop)


def _flags_of_server(arguments: argparse.Namespace) -> list[str]:
    return ["--enable-ui", *([f"--database-url={arguments.database_url}"] if arguments.database_url else [])]


def _folders(arguments: argparse.Namespace) -> tuple[Path | None, Path]:
    """Return the folder of --programs, and that of the cluster, which is made."""
    folder = Path(arguments.data_dir).expanduser().absolute()
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
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
            sys.executable, "-c", "import sys; from kubechronicle.ops.cli import main; sys.exit(main())", "serve",
            "--data-dir", str(self._folder), "--secure-port", str(port), "--controllers", "",
            "--bind-address", str(LOOPBACK), "--service-cluster-ip-range", "10.96.0.0/16", *flags,
        ]  # fmt: skip
        output = self._log("kube-apiserver")
        output.write_bytes(b"")
        await self.start(Component("kube-apiserver", command))
        await self._until(lambda: trio.to_thread.run_sync(_is_ready, output), "the API server")
        self._api = Api(pki.Pki(self._folder).kubeconfig_file)

    def write_kubeconfigs(self) -> dict[str, Path]:
        """Write a kubeconfig for each component."""
        own, written = pki.Pki(self._folder), {}
        authority = own.authority()
        ca, server = own.ca_file.read_bytes(), _server_of(own.kubeconfig_file)
        for name, (user, groups) in USERS.items():
            pair = pki.issue_client_certificate(authority, user, list(groups))
            text = pki.kubeconfig(server=server, ca=ca, user=user, pair=pair)
            written[name] = self._folder / f"{name}.kubeconfig"
            pki.write_whole(written[name], text.encode(), mode=0o600)
        return written

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
        """Make the nodes that are missing, and return when all are ready."""
        for number in range(count):
            await self._until(partial(self._has_node, number), f"node-{number}")
        await self._until(lambda: self._are_ready(count), "the nodes")

    async def _has_node(self, number: int) -> bool:
        status, _ = await self._ask("POST", "/api/v1/nodes", node(number))
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


def _server_of(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


async def _stop(process: trio.Process) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with trio.move_on_after(STOP_TIMEOUT):
        await process.wait()
        return
    process.kill()
    await process.wait()
