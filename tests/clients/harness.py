"""What the real-client tests share: servers as their users run them, and a plain HTTPS client.

Free of pytest except for its assertion rewriting; the fixtures are in conftest.py. Tests import it as ``harness``
(conftest puts this folder on the path). Nothing here knows how the server works: it uses the command line and HTTPS.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
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
from types import ModuleType
from typing import Any, TypeVar

from kubechronicle.ops.development.server_process import ServerProcess, postmaster

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARIES = ROOT / ".cache" / "bin"
PATIENCE = 60.0  # how long a test waits for what should take milliseconds, on a machine that is busy with other tests
IDLE = 45.0  # seconds after which a connection is not used again: the server closes those that say nothing for 90
T = TypeVar("T")

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """A name nobody else in this run uses."""
    return f"{prefix}-{next(_numbers)}"


def _load(path: Path) -> ModuleType:
    """A module by its path: the folders of tests are no packages."""
    if path.stem in sys.modules:
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


postgres_fixture = _load(ROOT / "tests" / "postgres_fixture.py")


def prepare(*programs: str) -> None:
    """Build the Go programs named; a second or two when they are built already."""
    subprocess.run([HERE / "prepare.sh", *programs], check=True, env=os.environ | {"PYTHON": sys.executable})


@contextlib.contextmanager
def home(name: str) -> Iterator[Path]:
    """A temporary directory others may enter: started by root, the embedded Postgres runs as another user."""
    path = Path(tempfile.mkdtemp(prefix=f"kubechronicle-{name}-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def eventually(look: Callable[[], T], what: str, *, timeout: float = PATIENCE, pause: float = 0.05) -> T:
    """What ``look`` returns once it is truthy. For conditions nobody announces, such as another process' state."""
    end = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < end, f"waited {timeout:.0f} s in vain: {what}"
        time.sleep(pause)
    return found


# HTTPS


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def expect(self, *statuses: int) -> Any:
        """The decoded body, if the status is one of these."""
        assert self.status in statuses, f"{self.status} instead of {statuses}: {self.body[:600]!r}"
        return self.json()


class Api:
    """One keep-alive HTTPS connection as cluster-admin, opened on demand. Not for use by several threads."""

    def __init__(self, server: Server, *, timeout: float = PATIENCE) -> None:
        self._server, self._timeout = server, timeout
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0  # time.monotonic at its last answer

    def request(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Answer:
        """One exchange. ``body``: bytes as they are, anything else as JSON. Raises what http.client and ssl raise."""
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
        """The answer's head, its body still to be read (watches)."""
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
        """End the connection under whoever reads from it."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # not TLS's, which would change its state

    def get(self, path: str) -> Any:
        return self.request("GET", path).expect(200)

    def create(self, path: str, obj: Any) -> Any:
        return self.request("POST", path, obj).expect(201)

    def namespace(self, name: str) -> str:
        """Make sure that it exists."""
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
        """The next event that is no bookmark."""
        while True:
            found = self.events.get(timeout=timeout)
            assert found is not None, "the watch ended"
            if found[1]["type"] != "BOOKMARK":
                return found[1]

    def take(self, count: int, *, timeout: float = PATIENCE) -> list[tuple[float, dict[str, Any]]]:
        """The next events (bookmarks left out), as many as ``count``."""
        taken: list[tuple[float, dict[str, Any]]] = []
        end = time.monotonic() + timeout
        while len(taken) < count:
            found = self.events.get(timeout=max(0.01, end - time.monotonic()))
            assert found is not None, f"the watch ended after {len(taken)} of {count} events"
            if found[1]["type"] != "BOOKMARK":
                taken.append(found)
        return taken

    def close(self) -> None:
        """Waking the reading thread first: closing would wait for the lock it holds while it reads."""
        self._api.abort()
        self._thread.join(PATIENCE)
        self._api.close()


# Servers


class Server(ServerProcess):
    """A server process with what tests want from it."""

    database_url: str = ""
    log_read: int = 0  # how much of the log earlier tests' reports have shown or skipped

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
        """The arguments by which every subcommand finds this server's log."""
        return ["--database-url", self.database_url] if self.database_url else ["--data-dir", str(self.data_dir)]

    def new_log(self) -> str:
        """What was logged since the last call."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(errors="replace")
        fresh, self.log_read = text[self.log_read :], len(text)
        return fresh

    def verify(self) -> None:
        """``kubechronicle verify``: revisions gapless, the hash chain whole."""
        done = subprocess.run(
            [*self.command(), "verify", *self.where()], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"verify: {done.stdout}{done.stderr}"


# All but the one that puts a ConfigMap into each namespace: tests count theirs, and watch them.
CONTROLLERS = ("--controllers", "*,-root-ca-cert-publisher")
SERVERS: list[Server] = []  # those of this session, for conftest to show their logs beside failures


def server_in(directory: Path, *, database_url: str = "", arguments: Sequence[str] = ()) -> Server:
    """A server that is not started yet, with its data in ``directory``."""
    more = ["--database-url", database_url] if database_url else []
    server = Server(directory, arguments=[*CONTROLLERS, *more, *arguments], port=postgres_fixture.free_port())
    server.database_url = database_url
    SERVERS.append(server)
    return server


def postgres_of(server: Server) -> int:
    """The process id of the server's embedded postmaster."""
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
