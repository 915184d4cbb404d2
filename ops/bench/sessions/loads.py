"""The measured sessions: each function of CASES carries a number of bytes through one session of kubectl."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.ops.bench.sessions.servers import NODE, Side

TIMEOUT: Final = 120.0
_BLOCK: Final = bytes(1 << 20)
_SPDY: Final = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
TRANSPORTS: Final[Mapping[str, Mapping[str, str]]] = {"websocket": {}, "spdy": _SPDY}
"""Name -> environment of kubectl."""


@dataclass(frozen=True, slots=True)
class Load:
    """One session of a case: its server, transport and number of bytes."""

    side: Side
    over: str
    size: int

    def environment(self) -> dict[str, str]:
        return os.environ | dict(TRANSPORTS[self.over])


def exec_output(load: Load) -> None:
    _run(load, "exec", NODE, "--", "head", "-c", str(load.size), "/dev/zero")


def exec_input(load: Load) -> None:
    with subprocess.Popen(["head", "-c", str(load.size), "/dev/zero"], stdout=subprocess.PIPE) as source:
        _run(load, "exec", "-i", NODE, "--", "sh", "-c", "cat >/dev/null", stdin=source.stdout)


def copy_in(load: Load) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "source"), Path(directory, "target")
        with source.open("wb") as file:
            file.truncate(load.size)
        _run(load, "cp", str(source), f"{NODE}:{target}", "-c", "c")
        if target.stat().st_size != load.size:
            raise RuntimeError("kubectl cp left bytes out")


def forward_output(load: Load) -> None:
    with _listener(lambda connection: _write(connection, load.size)) as port, _forwarded(load, port) as client:
        client.shutdown(socket.SHUT_WR)  # the stand-in ends the stream when both directions have ended
        _expect(_read(client), load.size)


def forward_input(load: Load) -> None:
    received: list[int] = []

    def serve(connection: socket.socket) -> None:
        received.append(_read(connection))
        connection.sendall(b".")

    with _listener(serve) as port, _forwarded(load, port) as client:
        _write(client, load.size)
        client.recv(1)
    _expect(received[0], load.size)


CASES: Final[Mapping[str, Callable[[Load], None]]] = {
    "exec-output": exec_output,
    "exec-input": exec_input,
    "forward-output": forward_output,
    "forward-input": forward_input,
    "cp-in": copy_in,
}


def _run(load: Load, *arguments: str, stdin: object = subprocess.DEVNULL) -> None:
    subprocess.run(
        load.side.kubectl(*arguments), stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,  # type: ignore[call-overload]
        env=load.environment(), check=True, timeout=TIMEOUT,
    )  # fmt: skip


@contextlib.contextmanager
def _forwarded(load: Load, port: int) -> Iterator[socket.socket]:
    """Yield a connection to this port through a kubectl port-forward."""
    command = load.side.kubectl("port-forward", NODE, f":{port}", "--address", "127.0.0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=load.environment()) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "127.0.0.1:" not in line:
                raise RuntimeError("kubectl port-forward has ended")
            local = int(line.split("127.0.0.1:", 1)[1].split()[0])
            with socket.create_connection(("127.0.0.1", local), TIMEOUT) as client:
                yield client
        finally:
            process.kill()


@contextlib.contextmanager
def _listener(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve one connection in a thread, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT)

        def run() -> None:
            with contextlib.suppress(OSError), listening.accept()[0] as connection:
                connection.settimeout(TIMEOUT)
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(TIMEOUT)


def _write(connection: socket.socket, size: int) -> None:
    """Send so many bytes, and end this direction."""
    while size:
        size -= connection.send(_BLOCK[:size])
    connection.shutdown(socket.SHUT_WR)


def _read(connection: socket.socket) -> int:
    """Return the number of bytes until the peer's end."""
    buffer, size = bytearray(1 << 20), 0
    while count := connection.recv_into(buffer):
        size += count
    return size


def _expect(size: int, wanted: int) -> None:
    if size != wanted:
        raise RuntimeError(f"{size} bytes of {wanted} came through")
