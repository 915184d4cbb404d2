"""Start-up time and memory of a server: ``python -m kubechronicle.ops.bench.start [--objects N]``.

Fills a new server with N ConfigMaps of 1 KB through its API, restarts it --runs times, and lists all ConfigMaps. Prints

    ready     seconds from exec until /readyz answers 200 over TLS: on the new directory, and on the full one
    memory    MiB of the server and of Postgres: empty, filled, started again, after the lists

Memory is resident memory. For Postgres, whose processes share buffers, it is the proportional set size: memory shared
by n processes counts 1/n for each. "at most" is the peak since the start.
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
SETTLE_SECONDS = 2.0  # of rest before memory is read
POLL_INTERVAL = 0.005  # seconds between requests for /readyz


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory in MiB. ``most``: the peak of the server since its start."""

    server: float
    most: float
    postgres: float

    def __str__(self) -> str:
        return f"{self.server:.0f} + {self.postgres:.0f} MiB (server at most {self.most:.0f})"


class Client:
    """A client with the rights of an administrator."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._address = urlsplit(server.url)
        self._tls = ssl.create_default_context(cafile=str(server.data_dir / "pki" / "ca.crt"))
        self._headers = {"Authorization": f"Bearer {token}"}

    def connection(self) -> http.client.HTTPSConnection:
        assert self._address.hostname is not None
        return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._tls, timeout=120)

    def send(self, connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None = None) -> int:
        """Send a request and return the size of the response. Raises RuntimeError for a failure."""
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {response.read()[:300]!r}")
        count = 0
        while part := response.read(1 << 20):
            count += len(part)
        return count

    def ready(self) -> bool:
        with contextlib.closing(self.connection()) as connection:
            try:
                self.send(connection, "GET", "/readyz")
            except (OSError, RuntimeError):
                return False
            return True


def start(server: ServerProcess, token: str) -> float:
    """Start the server and return the seconds from exec until it is ready."""
    server.start()
    ready_line, client = time.monotonic(), Client(server, token)
    while not client.ready():
        time.sleep(POLL_INTERVAL)
    return server.ready_after + time.monotonic() - ready_line


def fill(client: Client, objects: int) -> None:
    """Create the ConfigMaps over several connections."""
    data = {"data": {"value": "x" * SIZE}}

    def write(first: int) -> None:
        with contextlib.closing(client.connection()) as connection:
            for number in range(first, objects, WRITERS):
                metadata = {"name": f"object-{number:07}"}
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}
                path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
                client.send(connection, "POST", path, json.dumps(body).encode())

    with contextlib.closing(client.connection()) as connection:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        client.send(connection, "POST", "/api/v1/namespaces", json.dumps(namespace).encode())
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(write, range(WRITERS)):
            pass


def memory(server: ServerProcess) -> Memory:
    """Read the memory after some rest."""
    time.sleep(SETTLE_SECONDS)
    postmaster = server.embedded_postgres()
    return Memory(
        server=resident_mib(server.pid),
        most=resident_mib(server.pid, field="VmHWM"),
        postgres=memory_mib(descendants(postmaster)) if postmaster is not None else 0.0,
    )


def measure(server: ServerProcess, token: str, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield label and value of each measurement."""
    yield "ready, new directory", f"{start(server, token):.2f} s"
    yield "memory, empty", str(memory(server))
    began = time.monotonic()
    fill(Client(server, token), options.objects)
    yield f"filled with {options.objects:,}", f"in {time.monotonic() - began:.0f} s"
    yield "memory, filled", str(memory(server))
    starts: list[float] = []
    for _ in range(options.runs):
        server.stop()
        starts.append(start(server, token))
    yield "ready, full directory", _seconds(starts)
    yield "memory, started again", str(memory(server))
    yield f"{options.lists} lists", _seconds(list(lists(Client(server, token), options.lists)))
    yield "memory, after the lists", str(memory(server))


def lists(client: Client, count: int) -> Iterator[float]:
    """List all ConfigMaps repeatedly, and yield the seconds of each list."""
    with contextlib.closing(client.connection()) as connection:
        for _ in range(count):
            began = time.monotonic()
            client.send(connection, "GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")
            yield time.monotonic() - began


def _seconds(times: Sequence[float]) -> str:
    if not times:
        return "none"
    return f"{statistics.median(times):.2f} s (of {len(times)}: {min(times):.2f} to {max(times):.2f})"


@contextlib.contextmanager
def our_server(options: argparse.Namespace) -> Iterator[tuple[ServerProcess, str]]:
    """Return a server that is not started, and the token of an administrator."""
    home = Path(tempfile.mkdtemp(prefix="kubechronicle-start-", dir=options.directory))
    home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    token, tokens = secrets.token_hex(16), home / "tokens.csv"
    tokens.write_text(f'{token},bench,bench,"system:masters"\n')
    server = ServerProcess(home / "data", arguments=["--token-auth-file", str(tokens), *options.serve_argument])
    try:
        yield server, token
    finally:
        server.close()
        shutil.rmtree(home, ignore_errors=True)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.start", description="Measure start-up and memory of a server."
    )
    parser.add_argument("--objects", type=int, default=10_000, help="ConfigMaps of 1 KB (default 10000)")
    parser.add_argument("--runs", type=int, default=5, help="starts on the full directory (default 5)")
    parser.add_argument("--lists", type=int, default=10, help="lists of all ConfigMaps (default 10)")
    parser.add_argument("--directory", type=Path, help="parent of the data directory (default: /tmp)")
    parser.add_argument("--serve-argument", action="append", default=[], help="a further argument of the server")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, write: Callable[[str], object] = print) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.start", *argv])
    write(report.preamble(command, note=""))
    with our_server(options) as (server, token):
        for label, value in measure(server, token, options):
            write(f"{label:24} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
