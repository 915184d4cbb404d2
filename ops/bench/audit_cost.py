"""The cost of audit and of --record: the server's CPU time for a request, in turns with both off and with one of them.

    python -m kubechronicle.ops.bench.audit_cost [--rounds N] [--requests N] [--connections N] [--only TITLE;…]

One server process for each row serves the same GET of a ConfigMap of 4 KB, LISTs of 50 such ConfigMaps, and creations
of them; audit events go to a file. Only the CPU time of the server's threads counts, so that other load on the machine
matters little. The median of the rounds' differences to the row "off" is printed, with the quartiles.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
LIST: Final = "/api/v1/namespaces/default/configmaps?limit=50"
LISTED: Final = 50
SLOWER: Final = {"GET": 1, "LIST": 4, "create": 4}
"""GETs in the time of one such request, so that all take as long."""
VARIANTS: Final[dict[str, tuple[str, str]]] = {
    "off": ("", ""),
    "None": ("None", "batch"),
    "Metadata, blocking": ("Metadata", "blocking"),
    "Metadata, batch": ("Metadata", "batch"),
    "RequestResponse, blocking": ("RequestResponse", "blocking"),
    "RequestResponse, batch": ("RequestResponse", "batch"),
    "record": ("Metadata", "record"),
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
        self._created = 0

    @staticmethod
    def _connected(context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(address), server_hostname=address[0])

    def connect(self) -> None:
        """Open the connections anew. The server closes those that are idle while others are measured."""
        self.close()
        self._connections = [self._connect() for _ in range(self._count)]

    def create(self) -> None:
        """Create the object of the GETs, and those of the LISTs."""
        self.connect()
        self._ask(self._connections[0], self._creation(BODY))
        self.creations(LISTED)

    def _creation(self, body: str) -> bytes:
        path = PATH.rpartition("/")[0]
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        return f"POST {path} HTTP/1.1\r\n{self._head}{kind}\r\n\r\n{body}".encode()

    def gets(self, count: int, path: str = PATH) -> float:
        """Send ``count`` GETs over all connections, and return the CPU seconds that the server took for them."""
        request = f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()
        return self._sent([[request] * (count // self._count)] * self._count)

    def creations(self, count: int) -> float:
        """Create ``count`` objects over all connections, and return the CPU seconds that the server took for them."""
        first, self._created = self._created, self._created + count
        bodies = [self._creation(BODY.replace("of-4-kb", f"made-{first + number}")) for number in range(count)]
        return self._sent([bodies[start :: self._count] for start in range(self._count)])

    def _sent(self, requests: Sequence[Sequence[bytes]]) -> float:
        """Send requests over the connections, and return the CPU seconds that the server took for them."""
        self.connect()

        def send(connection: ssl.SSLSocket, own: Sequence[bytes]) -> None:
            for request in own:
                self._ask(connection, request)

        before = self.cpu_seconds()
        threads = [
            threading.Thread(target=send, args=(one, own)) for one, own in zip(self._connections, requests, strict=True)
        ]
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
def servers(folder: Path, connections: int, titles: Sequence[str]) -> Iterator[dict[str, Server]]:
    """Run a server for each variant."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Server] = {}
        for number, title in enumerate(titles):
            level, mode = VARIANTS[title]
            home = folder / str(number)
            home.mkdir()
            token, tokens, policy = secrets.token_hex(16), home / "tokens.csv", home / "policy.yaml"
            tokens.write_text(f'{token},bench,bench,"system:masters"\n')
            arguments = ["--token-auth-file", str(tokens), "--controllers", ""]
            if level:
                policy.write_text(POLICY.format(level))
            if mode == "record":
                arguments += ["--record", str(policy)]
            elif level:
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
    parser.add_argument("--only", metavar="TITLE;…", default="", help=f"beside off: {', '.join(VARIANTS)}")
    options = parser.parse_args(argv)
    titles = ["off", *(each for each in options.only.split(";") if each)] if options.only else list(VARIANTS)
    with tempfile.TemporaryDirectory() as directory, servers(Path(directory), options.connections, titles) as found:
        measured: dict[str, Callable[[Server], float]] = {
            "GET": lambda server: server.gets(options.requests),
            "LIST": lambda server: server.gets(options.requests // SLOWER["LIST"], LIST),
            "create": lambda server: server.creations(options.requests // SLOWER["create"]),
        }
        for name, measure in measured.items():
            count = options.requests // SLOWER[name]
            for server in found.values():
                measure(server)  # warm
            times: dict[str, list[float]] = {title: [] for title in found}
            for _ in range(options.rounds):
                for title, server in found.items():
                    times[title].append(1e6 * measure(server) / count)
            _print(name, times)
    return 0


def _print(name: str, times: Mapping[str, Sequence[float]]) -> None:
    out = terminal.stdout()
    out.line(f"| {name} | µs | more than off (quartiles) |")
    out.line("|---|---|---|")
    for title, values in times.items():
        more = [value - base for value, base in zip(values, times["off"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        out.line(f"| {title} | {statistics.median(values):.1f} | {middle:+.1f} ({low:+.1f} to {high:+.1f}) |")
    out.line("")


if __name__ == "__main__":
    sys.exit(main())
