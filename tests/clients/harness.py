"""Servers as users run them, and a plain HTTPS client, for the real-client tests.

The fixtures are in conftest.py. This module knows nothing of the server's implementation: it uses the command line and
HTTPS.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import postgres_fixture
from starting.forks import FORKS

from kubechronicle.ops.development.server_process import ServerProcess, postmaster

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARIES = ROOT / ".cache" / "bin"
PATIENCE = 60.0  # seconds for an action of milliseconds, on a machine busy with other tests
IDLE = 45.0  # seconds after which an idle connection is not reused: the server closes it after 90
T = TypeVar("T")

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """Return a name that is unique in this run."""
    return f"{prefix}-{next(_numbers)}"


def prepare(*programs: str) -> None:
    """Build the named Go programs. Takes a second or two if they are up to date."""
    subprocess.run([HERE / "prepare.sh", *programs], check=True, env=os.environ | {"PYTHON": sys.executable})


@contextlib.contextmanager
def home(name: str) -> Iterator[Path]:
    """Create a temporary directory readable by others: if root runs the tests, Postgres runs as another user."""
    path = Path(tempfile.mkdtemp(prefix=f"kubechronicle-{name}-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def eventually(look: Callable[[], T], condition: str, *, timeout: float = PATIENCE, pause: float = 0.05) -> T:
    """Call ``look`` until its result is true, and return it. For conditions without an event, as in another process."""
    end = time.monotonic() + timeout
    while not (result := look()):
        assert time.monotonic() < end, f"waited {timeout:.0f} s in vain: {condition}"
        time.sleep(pause)
    return result


# HTTPS


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def expect(self, *statuses: int) -> Any:
        """Return the decoded body. Assert that the status is one of these."""
        assert self.status in statuses, f"{self.status} instead of {statuses}: {self.body[:600]!r}"
        return self.json()


class Api:
    """One keep-alive HTTPS connection as cluster-admin, opened on demand. Not for several threads."""

    def __init__(self, server: Server, *, timeout: float = PATIENCE) -> None:
        self._server, self._timeout = server, timeout
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0  # time.monotonic at its last answer

    def request(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request and read the answer. ``body``: sent unchanged if bytes, else as JSON. Raises the errors of
        http.client and ssl."""
        response = self.open(method, path, body, headers=headers)
        try:
            body = response.read()
            self._used = time.monotonic()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
        except BaseException:
            self.close()
            raise

    def open(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request. Return the answer with its body still to be read (for watches)."""
        if time.monotonic() - self._used > IDLE:
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", self._server.port, timeout=self._timeout, context=self._server.client_context()
            )
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if data is not None else {})
        try:
            self._connection.request(method, path, body=data, headers=sent | dict(headers or {}))
            response = self._connection.getresponse()
            self._used = time.monotonic()
            return response
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Shut the connection down while another thread reads from it."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # of the socket, not of TLS

    def get(self, path: str) -> Any:
        return self.request("GET", path).expect(200)

    def create(self, path: str, obj: Any) -> Any:
        return self.request("POST", path, obj).expect(201)

    def namespace(self, name: str) -> str:
        """Create the namespace if it does not exist."""
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.request("POST", "/api/v1/namespaces", obj).expect(201, 409)
        return name


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Watch:
    """A watch read line by line in a thread; events arrive with the time of their receipt (time.monotonic)."""

    def __init__(self, server: Server, path: str) -> None:
        self._api = Api(server, timeout=600)
        self._response = self._api.open("GET", path)
        assert self._response.status == 200, self._response.read()[:600]
        self.events: queue.Queue[tuple[float, dict[str, Any]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self._response.readline():
                self.events.put((time.monotonic(), json.loads(line)))
        self.events.put(None)

    def next(self, *, timeout: float = PATIENCE) -> dict[str, Any]:
        """Return the next event that is not a bookmark."""
        while True:
            result = self.events.get(timeout=timeout)
            assert result is not None, "the watch ended"
            if result[1]["type"] != "BOOKMARK":
                return result[1]

    def take(self, count: int, *, timeout: float = PATIENCE) -> list[tuple[float, dict[str, Any]]]:
        """Return the next ``count`` events, without bookmarks."""
        taken: list[tuple[float, dict[str, Any]]] = []
        end = time.monotonic() + timeout
        while len(taken) < count:
            result = self.events.get(timeout=max(0.01, end - time.monotonic()))
            assert result is not None, f"the watch ended after {len(taken)} of {count} events"
            if result[1]["type"] != "BOOKMARK":
                taken.append(result)
        return taken

    def close(self) -> None:
        """Close the watch. The reading thread is woken first: it holds a lock that closing waits for."""
        self._api.abort()
        self._thread.join(PATIENCE)
        self._api.close()


# Servers


class Server(ServerProcess):
    """A server process with helpers for tests."""

    database_url: str = ""
    log_read: int = 0  # length of the log that earlier reports have shown or skipped

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.data_dir / "pki" / "ca.crt"))
        context.load_cert_chain(self.data_dir / "pki" / "admin.crt", self.data_dir / "pki" / "admin.key")
        return context

    def api(self, *, timeout: float = PATIENCE) -> Api:
        return Api(self, timeout=timeout)

    def watch(self, path: str) -> Watch:
        return Watch(self, path)

    def where(self) -> list[str]:
        """Return the arguments that name this server's database for a subcommand."""
        return ["--database-url", self.database_url] if self.database_url else ["--data-dir", str(self.data_dir)]

    def new_log(self) -> str:
        """Return the lines logged since the last call."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(errors="replace")
        fresh, self.log_read = text[self.log_read :], len(text)
        return fresh

    def verify(self) -> None:
        """Run ``kubechronicle verify``: revisions without gaps, an intact hash chain."""
        done = FORKS.run([*self.command(), "verify", *self.where()])
        assert done.returncode == 0, f"verify: {done.stdout}{done.stderr}"


# Without the loop that creates a ConfigMap in each namespace: tests count and watch ConfigMaps.
CONTROLLERS = ("--controllers", "*,-root-ca-cert-publisher")
SERVERS: list[Server] = []  # of this session; conftest shows their logs with failures


def server_in(directory: Path, *, database_url: str = "", arguments: Sequence[str] = ()) -> Server:
    """Return a server with its data in ``directory``, not started yet."""
    more = ["--database-url", database_url] if database_url else []
    server = Server(directory, arguments=[*CONTROLLERS, *more, *arguments], port=postgres_fixture.free_port())
    server.database_url = database_url
    SERVERS.append(server)
    return server


def postgres_of(server: Server) -> int:
    """Return the process id of the server's embedded postmaster."""
    pid = postmaster(server.data_dir / "postgres")
    assert pid is not None, "no embedded Postgres is running"
    return pid


@dataclass
class Cluster:
    """Two servers on one Postgres."""

    postgres: Any
    servers: list[Server] = field(default_factory=list)


@contextlib.contextmanager
def cluster_in(directory: Path, *, servers: int = 2) -> Iterator[Cluster]:
    postgres = postgres_fixture.start(directory / "postgres")
    cluster = Cluster(postgres)
    try:
        for number in range(servers):
            server = server_in(directory / f"server-{number}", database_url=postgres.url)
            cluster.servers.append(server)
            server.start()
        yield cluster
    finally:
        for server in cluster.servers:
            server.close()
        postgres.stop()
