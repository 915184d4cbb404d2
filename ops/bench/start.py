"""Start-up time and memory of a server: ``python -m kubechronicle.ops.bench.start [--objects N | --ephemeral]``.

Fills a new server with N ConfigMaps of 1 KB through its API, restarts it --runs times, and lists all ConfigMaps. Prints

    ready     seconds from exec until /readyz answers 200 over TLS: on the new directory, and on the full one
    memory    MiB of the server and of Postgres: empty, filled, started again, after the lists

With --ephemeral, it starts servers of `serve --ephemeral` instead: the first with a prepared process of its own, --runs
others after it, ten at once, and resets one of them that has 20 new objects. Memory is then the proportional set size.

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
from kubechronicle.ops.development.server_process import ServerProcess, Stat, descendants, memory_mib, resident_mib

NAMESPACE = "bench-start"
SIZE = 1024  # bytes of data of each ConfigMap
WRITERS = 8  # connections that fill the server
SETTLE_SECONDS = 2.0  # of rest before memory is read
POLL_INTERVAL = 0.005  # seconds between requests for /readyz
AT_ONCE = 10  # ephemeral servers
RESET_OBJECTS, RESETS = 20, 20
TEMPLATE = b"ops/ephemeral/template.py"  # in the command line of the prepared process and its forks


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


def measure_ephemeral(options: argparse.Namespace, home: Path, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each measurement of ephemeral servers."""
    # The prepared process depends on PYTHONPATH, so this run begins one of its own, which no other run uses.
    own = str(home / "none")
    variables, arguments = {"PYTHONPATH": own}, ["--ephemeral", "--ephemeral-linger=20s", *arguments]
    with contextlib.ExitStack() as stack:

        def new(name: str) -> ServerProcess:
            server = ServerProcess(home / name, arguments=arguments, environment=variables)
            stack.callback(server.close)
            return server

        yield "ready, the first", f"{new('first').start().ready_after:.2f} s"
        nexts = [new(f"next-{number}").start() for number in range(options.runs)]
        yield "ready, the next", _seconds([each.ready_after for each in nexts])
        imports, forks = _processes(own)
        cpu = statistics.median(stat.own for stat in forks)
        yield "CPU", f"{sum(stat.own for stat in imports):.2f} s for imports, {cpu:.2f} s for each server"
        stack.close()
        while _processes(own)[1]:
            time.sleep(POLL_INTERVAL)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            began = time.monotonic()
            servers = list(pool.map(ServerProcess.start, [new(f"one-of-ten-{number}") for number in range(AT_ONCE)]))
            yield f"ready, {AT_ONCE} at once", f"all in {time.monotonic() - began:.2f} s"
        time.sleep(SETTLE_SECONDS)
        forks = _processes(own)[1]
        every = memory_mib([stat for stat in descendants(1) if _has(stat, "environ", own.encode())])
        yield "memory of one", f"{memory_mib(forks) / AT_ONCE:.0f} MiB, with all helpers {every / AT_ONCE:.0f} MiB"
        client = Client(servers[0], (home / "tokens.csv").read_text().partition(",")[0])
        yield f"reset of {RESET_OBJECTS} objects", _milliseconds(list(resets(client)))


def _processes(variable: str) -> tuple[list[Stat], list[Stat]]:
    """Return the prepared process that began with the value of a variable in a list, and its servers."""
    all_of_them = [stat for stat in descendants(1) if _has(stat, "environ", variable.encode())]
    forked = {stat.pid: stat for stat in all_of_them if _has(stat, "cmdline", TEMPLATE)}
    # The parent of a server is its watcher, whose parent is the prepared process.
    servers = [stat for stat in forked.values() if stat.parent in forked and forked[stat.parent].parent in forked]
    return [stat for stat in forked.values() if stat.parent not in forked], servers


def _has(stat: Stat, file: str, text: bytes) -> bool:
    try:
        return text in Path(f"/proc/{stat.pid}/{file}").read_bytes()
    except OSError:
        return False


def resets(client: Client) -> Iterator[float]:
    """Create objects and reset the server, repeatedly; yield the seconds of each reset."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": "x" * SIZE}}
    with contextlib.closing(client.connection()) as connection:
        client.send(connection, "POST", "/ephemeral/mark")
        for _ in range(RESETS):
            for number in range(RESET_OBJECTS):
                named = json.dumps(body | {"metadata": {"name": f"object-{number}"}}).encode()
                client.send(connection, "POST", "/api/v1/namespaces/default/configmaps", named)
            began = time.monotonic()
            client.send(connection, "POST", "/ephemeral/reset")
            yield time.monotonic() - began


def _milliseconds(times: Sequence[float]) -> str:
    median, least, most = (1000 * each for each in (statistics.median(times), min(times), max(times)))
    return f"{median:.1f} ms (of {len(times)}: {least:.1f} to {most:.1f})"


def _seconds(times: Sequence[float]) -> str:
    if not times:
        return "none"
    return f"{statistics.median(times):.2f} s (of {len(times)}: {min(times):.2f} to {max(times):.2f})"


@contextlib.contextmanager
def temporary(options: argparse.Namespace) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield a directory, the token of an administrator, and the arguments with which servers accept it."""
    home = Path(tempfile.mkdtemp(prefix="kubechronicle-start-", dir=options.directory))
    home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    token, tokens = secrets.token_hex(16), home / "tokens.csv"
    tokens.write_text(f'{token},bench,bench,"system:masters"\n')
    try:
        yield home, token, ["--token-auth-file", str(tokens), *options.serve_argument]
    finally:
        shutil.rmtree(home, ignore_errors=True)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.start", description="Measure start-up and memory of a server."
    )
    parser.add_argument("--ephemeral", action="store_true", help="measure servers of serve --ephemeral")
    parser.add_argument("--objects", type=int, default=10_000, help="ConfigMaps of 1 KB (default 10000)")
    parser.add_argument(
        "--runs", type=int, default=5, help="starts on the full directory, or after the first (default 5)"
    )
    parser.add_argument("--lists", type=int, default=10, help="lists of all ConfigMaps (default 10)")
    parser.add_argument("--directory", type=Path, help="parent of the data directory (default: /tmp)")
    parser.add_argument("--serve-argument", action="append", default=[], help="a further argument of the server")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, write: Callable[[str], object] = print) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.start", *argv])
    write(report.preamble(command, note=""))
    with temporary(options) as (home, token, arguments), contextlib.ExitStack() as stack:
        if options.ephemeral:
            measured = measure_ephemeral(options, home, arguments)
        else:
            server = ServerProcess(home / "data", arguments=arguments)
            stack.callback(server.close)
            measured = measure(server, token, options)
        for label, value in measured:
            write(f"{label:24} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
