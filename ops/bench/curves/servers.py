"""The curve of replicas: several servers on one external Postgres.

    python -m kubechronicle.ops.bench.curves.servers DIR    runs such a Postgres in DIR until standard input ends

The load spreads its connections over the servers. Watchers and writers use different servers, so that each event passes
through the log.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from kubechronicle.ops.bench.curves import points
from kubechronicle.ops.bench.curves.bench import Bench, at_rest, create, event, get
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.own_server import Running, Workspace
from kubechronicle.ops.bench.usage import Sampler, ourselves
from kubechronicle.ops.development.server_process import ServerProcess, Stat, descendants, postmaster, running
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres


@dataclass(slots=True, kw_only=True)
class Several(Running):
    """Several servers on one Postgres.

    ``server``: the first of ``servers``
    ``cluster``: the directory of the Postgres
    ``keeper``: the process that runs the Postgres
    """

    servers: Sequence[ServerProcess]
    cluster: Path
    keeper: int

    def __post_init__(self) -> None:
        database = postmaster(self.cluster)
        assert database is not None
        server_roots = [*(server.pid for server in self.servers), self.keeper]
        self.sampler = Sampler(
            groups={
                "server": self.processes,
                "postgres": partial(descendants, database),
                "load": partial(ourselves, without=lambda: server_roots),
            },
            cluster=self.cluster,
        )

    def processes(self) -> list[Stat]:
        return [process for server in self.servers for process in descendants(server.pid)]

    def server_flags(self) -> list[str]:
        authorities = ",".join(str(server.data_dir / "pki" / "ca.crt") for server in self.servers)
        return [f"-server={','.join(server.url for server in self.servers)}", f"-ca={authorities}"]


@contextlib.contextmanager
def database(directory: Path) -> Iterator[tuple[str, int]]:
    """Run a Postgres in the directory. Return its URL and the id of the process that runs it."""
    command = [sys.executable, "-m", __spec__.name, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            yield keeper.stdout.readline().strip(), keeper.pid
        finally:
            keeper.stdin.close()


async def keep(directory: Path) -> None:
    async with embedded_postgres(directory) as url:
        print(url, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


@contextlib.contextmanager
def several(workspace: Workspace, count: int) -> Iterator[Several]:
    """Start the servers one after another, on a database that stays in the workspace."""
    home = workspace.data_dir.parent
    with contextlib.ExitStack() as stack:
        url, keeper = stack.enter_context(database(home / "shared"))
        arguments = [*workspace.arguments(), "--database-url", url]
        servers = [
            stack.enter_context(running(ServerProcess(home / f"server-{number}", arguments=arguments)))
            for number in range(count)
        ]
        yield Several(
            server=servers[0],
            token=workspace.token,
            load=workspace.load,
            settle=workspace.settle,
            workers=count,
            servers=servers,
            cluster=home / "shared" / "postgres",
            keeper=keeper,
        )


def replicas(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    with bench.workspace() as workspace:
        for x in bench.within("replicas", positions, lambda x: 10 + 3 * x + 4 * bench.seconds):
            with several(workspace, x) as running_servers:
                yield at_rest(running_servers, "replicas", x)
                yield get(bench, running_servers, "replicas", x, points.GET_64, 64)
                yield create(bench, running_servers, "replicas", x, points.CREATE_64, 64)
                yield event(bench, running_servers, "replicas", x, points.EVENT_ELSEWHERE, 1)
                yield event(bench, running_servers, "replicas", x, points.EVENTS_ELSEWHERE, 100)


if __name__ == "__main__":
    trio.run(keep, Path(sys.argv[1]))
