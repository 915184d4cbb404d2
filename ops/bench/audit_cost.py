"""The cost of audit: the server's CPU time for a request, in turns with audit off and at each level.

    python -m kubechronicle.ops.bench.audit_cost [--rounds N] [--requests N] [--connections N]

One server process for each row serves the same GET of a ConfigMap of 4 KB, with the events written to a file. Only the
CPU time of the server's threads counts, so that other load on the machine matters little. The median of the rounds'
differences to audit off is printed, with the quartiles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import socket
import ssl
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubechronicle.ops import terminal
from kubechronicle.ops.development.server_process import ServerProcess, running

PATH: Final = "/api/v1/namespaces/default/configmaps/of-4-kb"
BODY: Final = json.dumps(
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-4-kb"}, "data": {"text": "some text " * 380}}
)
POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{{level: {}}}]
"""
VARIANTS: Final[dict[str, tuple[str, str]]] = {
    "off": ("", ""),
    "None": ("None", "batch"),
    "Metadata, blocking": ("Metadata", "blocking"),
    "Metadata, batch": ("Metadata", "batch"),
    "RequestResponse, blocking": ("RequestResponse", "blocking"),
    "RequestResponse, batch": ("RequestResponse", "batch"),
}
"""Title -> level and mode."""


class Server:
    """A server with audit at one level, and open connections to it."""

    def __init__(self, process: ServerProcess, token: str, connections: int) -> None:
        self.process = process
        parts = urlsplit(process.url)
        context = ssl.create_default_context(cafile=str(process.data_dir / "pki" / "ca.crt"))
        address = (parts.hostname or "", parts.port or 443)
        self._head = f"Host: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
        self._count = connections
        self._connect = partial(self._connected, context, address)
        self._connections: list[ssl.SSLSocket] = []

    @staticmethod
    def _connected(context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(address), server_hostname=address[0])

    def connect(self) -> None:
        """Open the connections anew. The server closes those that are idle while others are measured."""
        self.close()
        self._connections = [self._connect() for _ in range(self._count)]

    def create(self) -> None:
        self.connect()
        path = PATH.rpartition("/")[0]
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        self._ask(self._connections[0], (head + BODY).encode())

    def gets(self, count: int) -> float:
        """Send ``count`` GETs over all connections, and return the CPU seconds that the server took for them."""
        request = f"GET {PATH} HTTP/1.1\r\n{self._head}\r\n".encode()
        each = count // self._count
        self.connect()

        def send(connection: ssl.SSLSocket) -> None:
            for _ in range(each):
                self._ask(connection, request)

        before = self.cpu_seconds()
        threads = [threading.Thread(target=send, args=(one,)) for one in self._connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.cpu_seconds() - before

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all threads of the server."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _ask(self, connection: ssl.SSLSocket, request: bytes) -> None:
        connection.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += _received(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise SystemExit(f"the server answers {head[:200]!r}")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += _received(connection)


def _received(connection: ssl.SSLSocket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise SystemExit("the server has closed a connection")
    return data


@contextlib.contextmanager
def servers(folder: Path, connections: int) -> Iterator[dict[str, Server]]:
    """Run a server for each variant."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Server] = {}
        for number, (title, (level, mode)) in enumerate(VARIANTS.items()):
            home = folder / str(number)
            home.mkdir()
            token, tokens, policy = secrets.token_hex(16), home / "tokens.csv", home / "policy.yaml"
            tokens.write_text(f'{token},bench,bench,"system:masters"\n')
            arguments = ["--token-auth-file", str(tokens), "--controllers", ""]
            if level:
                policy.write_text(POLICY.format(level))
                arguments += ["--audit-policy-file", str(policy), "--audit-log-path", str(home / "audit.log")]
                arguments += ["--audit-log-mode", mode]
            process = ServerProcess(home / "data", arguments=arguments)
            stack.enter_context(running(process))
            server = found[title] = Server(process, token, connections)
            stack.callback(server.close)
            server.create()
        yield found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.audit_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=2000, help="requests of a round")
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args(argv)
    out = terminal.stdout()
    with tempfile.TemporaryDirectory() as directory, servers(Path(directory), options.connections) as found:
        for server in found.values():
            server.gets(options.requests)  # warm
        times: dict[str, list[float]] = {title: [] for title in found}
        for _ in range(options.rounds):
            for title, server in found.items():
                times[title].append(1e6 * server.gets(options.requests) / options.requests)
    out.line("| audit | µs a GET | more than off (quartiles) |")
    out.line("|---|---|---|")
    for title, values in times.items():
        more = [value - base for value, base in zip(values, times["off"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        out.line(f"| {title} | {statistics.median(values):.1f} | {middle:+.1f} ({low:+.1f} to {high:+.1f}) |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
