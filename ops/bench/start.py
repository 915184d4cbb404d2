"""What start-up and memory cost: ``python -m kubechronicle.ops.bench.start [--objects N]``.

A server on a data directory of its own is filled with N ConfigMaps of 1 KB through its API, started again on that
directory as often as --runs says, and asked for lists of all of them. Printed are

    ready     seconds from exec until /readyz answers 200 over TLS: on the new directory, and on the full one
    memory    of the server and of Postgres with its processes, in MiB: empty, filled, started again, after the lists

Memory is resident; for Postgres, whose processes share its buffers, it is the proportional set size (what n processes
share counts 1/n for each). The most is the high-water mark since the start.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import secrets
import shlex
import shutil
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kubechronicle.ops.bench import report
from kubechronicle.ops.development.server_process import ServerProcess, descendants, memory_mib, resident_mib

NAMESPACE = "bench-start"
SIZE = 1024  # bytes of data of each ConfigMap
WRITERS = 8  # connections that fill the server
SETTLE_SECONDS = 2.0  # before memory is read: what start-up or load left behind has gone by then
POLL = 0.005  # seconds between questions for readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """In MiB. ``most``: of the server since it was started."""

    server: float
    most: float
    postgres: float

    def __str__(self) -> str:
        return f"{self.server:.0f} + {self.postgres:.0f} MiB (server at most {self.most:.0f})"


class Client:
    """One connection at a time to the server, as somebody who may do everything."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._address = urlsplit(server.url)
        self._tls = ssl.create_default_context(cafile=str(server.data_dir / "pki" / "ca.crt"))
        self._headers = {"Authorization": f"Bearer {token}"}

    def connection(self) -> http.client.HTTPSConnection:
        assert self._address.hostname is not None
        return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._tls, timeout=120)

    def ask(self, connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None = None) -> int:
        """The bytes of the answer. RuntimeError: it is none of success."""
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()[:300]!r}")
        count = 0
        while part := answer.read(1 << 20):
            count += len(part)
        return count

    def ready(self) -> bool:
        with contextlib.closing(self.connection()) as connection:
            try:
                self.ask(connection, "GET", "/readyz")
            except (OSError, RuntimeError):
                return False
            return True


def start(server: ServerProcess, token: str) -> float:
    """Seconds from exec to ready."""
    server.start()
    told, client = time.monotonic(), Client(server, token)
    while not client.ready():
        time.sleep(POLL)
    return server.ready_after + time.monotonic() - told


def fill(client: Client, objects: int) -> None:
    """That many ConfigMaps beside those that are there, from several connections."""
    data = {"data": {"value": "x" * SIZE}}

    def write(first: int) -> None:
        with contextlib.closing(client.connection()) as connection:
            for number in range(first, objects, WRITERS):
                metadata = {"name": f"object-{number:07}"}
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}
                client.ask(connection, "POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", json.dumps(body).encode())

    with contextlib.closing(client.connection()) as connection:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        client.ask(connection, "POST", "/api/v1/namespaces", json.dumps(namespace).encode())
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(write, range(WRITERS)):
            pass


def memory(server: ServerProcess) -> Memory:
    """After a moment of rest."""
    time.sleep(SETTLE_SECONDS)
    postmaster = server.embedded_postgres()
    return Memory(
        server=resident_mib(server.pid),
        most=resident_mib(server.pid, field="VmHWM"),
        postgres=memory_mib(descendants(postmaster)) if postmaster is not None else 0.0,
    )


def measure(server: ServerProcess, token: str, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(what, figures), one after another."""
    yield "ready, new directory", f"{start(server, token):.2f} s"
    yield "memory, empty", str(memory(server))
    began = time.monotonic()
    fill(Client(server, token), options.objects)
    yield f"filled with {options.objects:,}", f"in {time.monotonic() - began:.0f} s"
    yield "memory, filled", str(memory(server))
    taken: list[float] = []
    for _ in range(options.runs):
        server.stop()
        taken.append(start(server, token))
    yield "ready, full directory", _seconds(taken)
    yield "memory, started again", str(memory(server))
    yield f"{options.lists} lists", _seconds(list(lists(Client(server, token), options.lists)))
    yield "memory, after the lists", str(memory(server))


def lists(client: Client, count: int) -> Iterator[float]:
    """Seconds each list of all ConfigMaps took, one after another."""
    with contextlib.closing(client.connection()) as connection:
        for _ in range(count):
            began = time.monotonic()
            client.ask(connection, "GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")
            yield time.monotonic() - began


def _seconds(taken: Sequence[float]) -> str:
    if not taken:
        return "none"
    return f"{statistics.median(taken):.2f} s (of {len(taken)}: {min(taken):.2f} to {max(taken):.2f})"


@contextlib.contextmanager
def our_server(options: argparse.Namespace) -> Iterator[tuple[ServerProcess, str]]:
    """A server that is yet to be started, and the token of one who may do everything."""
    home = Path(tempfile.mkdtemp(prefix="kubechronicle-start-", dir=options.directory))
    home.chmod(0o755)  # started by root, Postgres runs as another user and has to get in
    token, tokens = secrets.token_hex(16), home / "tokens.csv"
    tokens.write_text(f'{token},bench,bench,"system:masters"\n')
    server = ServerProcess(home / "data", arguments=["--token-auth-file", str(tokens), *options.serve_argument])
    try:
        yield server, token
    finally:
        server.close()
        shutil.rmtree(home, ignore_errors=True)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.start", description="Measure start-up and memory of a server."
    )
    parser.add_argument("--objects", type=int, default=10_000, help="ConfigMaps of 1 KB (default 10000)")
    parser.add_argument("--runs", type=int, default=5, help="starts on the full directory (default 5)")
    parser.add_argument("--lists", type=int, default=10, help="lists of all of them (default 10)")
    parser.add_argument("--directory", type=Path, help="where the data directory is made (default: /tmp)")
    parser.add_argument("--serve-argument", action="append", default=[], help="one more argument of the server")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None, tell: Callable[[str], object] = print) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.start", *given])
    tell(report.preamble(command, note=""))
    with our_server(options) as (server, token):
        for what, figures in measure(server, token, options):
            tell(f"{what:24} {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
