"""Two servers behind a TCP load balancer that asks /readyz: a server that drains and comes back costs no request.

With KUBECHRONICLE_HAPROXY=yes also behind a real HAProxy with ops/install/haproxy.cfg (`make test-haproxy`).
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import harness
import postgres_fixture
import pytest
from harness import Server, eventually

PAUSE = 0.3
"""Seconds between checks; two failures take a server out of use, as in ops/install/haproxy.cfg."""
DRAIN = "5s"
CONFIGURATION = Path(__file__).parents[3] / "ops/install/haproxy.cfg"


class Balancer:
    """Passes connections on to the servers in use, in turns."""

    def __init__(self, servers: list[Server], context: ssl.SSLContext) -> None:
        self.port = 0
        self.used = {server.port: 0 for server in servers}  # failures in sequence
        self.passed: list[int] = []  # ports of servers, one for each connection
        self._context = context
        self._turns = itertools.count()
        self._listening = threading.Event()
        self._loop = asyncio.new_event_loop()

    def in_use(self) -> list[int]:
        return [port for port, failures in self.used.items() if failures < 2]

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        thread.start()
        self._listening.wait(10)
        yield
        self._loop.call_soon_threadsafe(self._end.set)
        thread.join(10)

    async def _run(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        checks = [asyncio.create_task(self._check(port)) for port in self.used]
        await self._end.wait()
        for check in checks:
            check.cancel()
        server.close()

    async def _check(self, port: int) -> None:
        while True:
            ready = await asyncio.to_thread(self._is_ready, port)
            self.used[port] = 0 if ready else self.used[port] + 1
            await asyncio.sleep(PAUSE)

    def _is_ready(self, port: int) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=self._context, timeout=10)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports = self.in_use()
        port = ports[next(self._turns) % len(ports)]
        self.passed.append(port)
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, back_writer), _copy(back_reader, writer))
        except OSError:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class HAProxy:
    """A real HAProxy with the shipped configuration. It is observed through its log."""

    def __init__(self, servers: list[Server], folder: Path) -> None:
        self.port = postgres_fixture.free_port()
        self._ports = dict(zip(("one", "two"), (server.port for server in servers), strict=True))
        self._log = folder / "haproxy.log"
        self._configuration = folder / "haproxy.cfg"
        text = CONFIGURATION.read_text().replace("bind :6443", f"bind 127.0.0.1:{self.port}")
        text = text.replace("maxconn 20000", "maxconn 200")  # within the limit of open files
        for name, port in self._ports.items():
            text, found = re.subn(rf"server {name} \S+", f"server {name} 127.0.0.1:{port}", text)
            assert found == 1
        self._configuration.write_text(text)

    @property
    def passed(self) -> list[int]:
        return [self._ports[name] for name in re.findall(r"servers/(one|two) \d+/\d+", self._log.read_text())]

    def in_use(self) -> list[int]:
        states = dict(re.findall(r"Server servers/(one|two) is (UP|DOWN)", self._log.read_text()))
        return [port for name, port in self._ports.items() if states.get(name) != "DOWN"]

    @contextmanager
    def running(self) -> Iterator[None]:
        program = shutil.which("haproxy") or str(CONFIGURATION.parents[2] / ".cache/bin/haproxy")
        with self._log.open("wb") as log:
            process = subprocess.Popen([program, "-db", "-f", str(self._configuration)], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.skipif(os.environ.get("KUBECHRONICLE_HAPROXY") != "yes", reason="needs HAProxy: make test-haproxy")
def test_a_server_that_drains_behind_haproxy_costs_no_request() -> None:
    with _two_servers(drain="15s") as (servers, home):  # as the configuration says
        balancer = HAProxy(servers, home)
        with balancer.running():
            eventually(lambda: _accepts(balancer.port), "HAProxy listens")
            _drain_one(servers, balancer)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_a_server_that_drains_costs_no_request() -> None:
    with _two_servers(drain=DRAIN) as (servers, _):
        balancer = Balancer(servers, servers[0].client_context())
        with balancer.running():
            _drain_one(servers, balancer)


@contextmanager
def _two_servers(drain: str) -> Iterator[tuple[list[Server], Path]]:
    """Yield two servers with the same keys on one database, and a folder."""
    with harness.home("balanced") as home:
        postgres = postgres_fixture.start(home / "postgres")
        servers = [
            harness.server_in(home / name, database_url=postgres.url, arguments=["--shutdown-delay-duration", drain])
            for name in ("one", "two")
        ]
        try:
            servers[0].start()
            shutil.copytree(home / "one" / "pki", home / "two" / "pki", dirs_exist_ok=True)
            servers[1].start()
            yield servers, home
        finally:
            for server in servers:
                server.close()
            postgres.stop()


def _drain_one(servers: list[Server], balancer: Balancer | HAProxy) -> None:
    context, done = servers[0].client_context(), threading.Event()
    answers: list[int | Exception] = []

    def write() -> None:
        for number in itertools.count():
            if done.is_set():
                return
            connection = http.client.HTTPSConnection("127.0.0.1", balancer.port, context=context, timeout=30)
            try:
                body = json.dumps({"metadata": {"name": f"c{number}"}})
                fields = {"Content-Type": "application/json"}
                connection.request("POST", "/api/v1/namespaces/default/configmaps", body, fields)
                answers.append(connection.getresponse().status)
            except (OSError, http.client.HTTPException) as error:
                answers.append(error)
            connection.close()
            time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        eventually(lambda: len(set(balancer.passed)) == 2, "both servers get connections")
        servers[0].stop()
        assert balancer.in_use() == [servers[1].port]
        servers[0].start()
        eventually(lambda: len(balancer.in_use()) == 2, "the server is in use again")
        start = len(balancer.passed)
        eventually(lambda: servers[0].port in balancer.passed[start:], "it gets connections again")
    finally:
        done.set()
        writer.join(60)
    assert len(answers) > 20
    assert set(answers) == {201}
