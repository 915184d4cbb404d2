"""The worlds of the robustness test, and the faults.

Two servers, each with a proxy of its own before one Postgres; or one server with the embedded Postgres, which alone
appends. Each may have several worker processes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import postgres_fixture
import trio
from harness import Server, eventually, home, postgres_of, server_in
from outages.standby import promote, psql, standby_of, wait_replayed
from outages.unreliable_proxy import UnreliableProxy

from kubechronicle.ops.development.server_process import descendants
from kubechronicle.ops.postgres.cluster import socket_url

READY = 120.0  # seconds until a server is ready again after a fault


class Proxies:
    """The proxies, in a thread with an event loop of their own."""

    def __init__(self, port: int, count: int) -> None:
        self.proxies = [UnreliableProxy(port) for _ in range(count)]
        self._started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            for proxy in self.proxies:
                await self._nursery.start(proxy.run)
            self._started.set()
            await trio.sleep_forever()

    def call(self, function: Callable[[], object]) -> None:
        trio.from_thread.run_sync(function, trio_token=self._token)

    def cut(self, proxy: UnreliableProxy) -> None:
        trio.from_thread.run(proxy.cut, trio_token=self._token)

    def lead_to(self, port: int) -> None:
        for proxy in self.proxies:
            proxy.server_port = port
            self.cut(proxy)

    def close(self) -> None:
        self.call(self._nursery.cancel_scope.cancel)
        self._thread.join(30)


class Embedded:
    """The embedded Postgres of a server, as far as faults and questions need it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def url(self) -> str:
        return socket_url(self._server.data_dir / "postgres")

    def sql(self, statement: str) -> str:
        tools = postgres_fixture.binaries()
        assert tools is not None
        command = [str(tools / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def kill9(self) -> None:
        os.kill(postgres_of(self._server), signal.SIGKILL)


class World:
    def __init__(self, postgres: Any, servers: list[Server], proxies: Proxies | None, stack: ExitStack) -> None:
        self.postgres, self.servers, self.stack = postgres, servers, stack
        self._proxies = proxies

    @property
    def proxies(self) -> Proxies:
        assert self._proxies is not None, "this fault needs two servers"
        return self._proxies

    def sql(self, statement: str) -> str:
        if isinstance(self.postgres, Embedded):
            return self.postgres.sql(statement)
        return psql(self.postgres, statement)

    def wait_ready(self) -> None:
        for server in self.servers:
            eventually(lambda server=server: is_ready(server), f"{server.url} is ready", timeout=READY)  # type: ignore[misc]

    def close(self) -> None:
        for server in self.servers:
            server.close()
        if self._proxies is not None:
            self._proxies.close()


def is_ready(server: Server) -> bool:
    try:
        with closing(server.api(timeout=10)) as api:
            return api.request("GET", "/readyz").status == 200
    except OSError:
        return False


@contextmanager
def running(*, workers: int = 1, embedded: bool = False) -> Iterator[World]:
    """Run a world. ``workers``: of each server. ``embedded``: one server with its own Postgres."""
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    with ExitStack() as stack:
        directory = stack.enter_context(home("robustness"))
        if embedded:
            alone = server_in(Path(directory) / "server", arguments=arguments)
            world = World(Embedded(alone), [alone], None, stack)
            stack.callback(world.close)
            alone.start()
            yield world
            return
        postgres = stack.enter_context(postgres_fixture.running())
        proxies = Proxies(postgres.port, 2)
        world = World(postgres, [], proxies, stack)
        stack.callback(world.close)
        for number, proxy in enumerate(proxies.proxies):
            url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
            server = server_in(Path(directory) / f"server-{number}", database_url=url, arguments=arguments)
            if number:  # both accept the certificates of both
                (server.data_dir / "pki").parent.mkdir(parents=True, exist_ok=True)
            world.servers.append(server)
            server.start()
        yield world


# Faults. Each changes the world, waits as long as it should last, and mends what does not mend itself.


def nothing(world: World, chance: random.Random) -> None:
    time.sleep(1)


def kill_server(world: World, chance: random.Random) -> None:
    server = chance.choice(world.servers)
    server.kill9()
    server.start()


def stop_server(world: World, chance: random.Random) -> None:
    server = chance.choice(world.servers)
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(server.pid, signal.SIGCONT)


def workers_of(server: Server) -> list[int]:
    return [
        process.pid
        for process in descendants(server.pid)
        if b"kubechronicle.ops.server.worker" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]


def kill_worker(world: World, chance: random.Random) -> None:
    os.kill(chance.choice(workers_of(chance.choice(world.servers))), signal.SIGKILL)


def stop_worker(world: World, chance: random.Random) -> None:
    """Stop a worker for longer than its parent waits, or for less."""
    pid = chance.choice(workers_of(chance.choice(world.servers)))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.choice((1.0, 6.0)))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill_embedded(world: World, chance: random.Random) -> None:
    world.postgres.kill9()


def kill_postgres(world: World, chance: random.Random) -> None:
    world.postgres.kill9()
    time.sleep(chance.uniform(0, 2))
    world.postgres.start()


def restart_postgres(world: World, chance: random.Random) -> None:
    world.postgres.restart()


def stop_backend(world: World, chance: random.Random) -> None:
    assert world.postgres.process is not None
    backends = [process.pid for process in descendants(world.postgres.process.pid)][1:]
    pid = chance.choice(backends)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(pid, signal.SIGCONT)


def cut(world: World, chance: random.Random) -> None:
    for _ in range(5):
        world.proxies.cut(chance.choice(world.proxies.proxies))
        time.sleep(0.3)


def hold(world: World, chance: random.Random) -> None:
    proxy = chance.choice(world.proxies.proxies)
    world.proxies.call(proxy.hold)
    time.sleep(4)
    world.proxies.call(proxy.release)


def swallow(world: World, chance: random.Random) -> None:
    world.proxies.call(chance.choice(world.proxies.proxies).swallow)


def swallow_all(world: World, chance: random.Random) -> None:
    for proxy in world.proxies.proxies:
        world.proxies.call(proxy.swallow)


def failover(world: World, chance: random.Random) -> None:
    """Promote a synchronous standby: nothing acknowledged is lost."""
    old = world.postgres
    new = world.stack.enter_context(standby_of(old))
    psql(old, "alter system set synchronous_standby_names = '*'")
    psql(old, "select pg_reload_conf()")
    wait_replayed(old, new)
    time.sleep(1)
    old.kill9()
    promote(new)
    world.postgres = new
    world.proxies.lead_to(new.port)


FAULTS: dict[str, Callable[[World, random.Random], None]] = {
    "nothing": nothing,
    "kill-server": kill_server,
    "stop-server": stop_server,
    "kill-postgres": kill_postgres,
    "restart-postgres": restart_postgres,
    "stop-backend": stop_backend,
    "cut": cut,
    "hold": hold,
    "swallow": swallow,
    "swallow-all": swallow_all,
    "failover": failover,
    "kill-worker": kill_worker,
    "stop-worker": stop_worker,
    "kill-embedded": kill_embedded,
}
OF_WORKERS: Final = ("kill-worker", "stop-worker")
OF_EMBEDDED: Final = ("nothing", "kill-server", "stop-server", "kill-embedded")


def faults_of(*, workers: int, embedded: bool) -> list[str]:
    """Return the faults that such a world can have."""
    of_world = OF_EMBEDDED if embedded else [name for name in FAULTS if name not in (*OF_WORKERS, "kill-embedded")]
    return [*of_world, *(OF_WORKERS if workers > 1 else ())]
