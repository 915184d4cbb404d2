"""`kubechronicle` and `kubectl-chronicle` without the start of an interpreter: a process forks for each.

    python quick_commands.py SOCKET

Sessions run dozens of commands, and each start imports for a quarter of a second of CPU. The program in the folder of
the sessions sends its arguments, directory, environment and open files to SOCKET. The child there runs the same
``main``. Other tests and the README's session start the real programs.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# -S: the packages of the environment are not needed, and to find them takes longer than all the rest.
CALLER = """#!{python} -SE
import array, json, os, socket, sys
if set(sys.argv[1:2]) & set({itself!r}):
    os.execv({programs!r} + os.path.basename(sys.argv[0]), sys.argv)
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
files = array.array("i", [0, 1, 2]).tobytes()
connection.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
connection.sendall(request)
sys.exit(int(connection.recv(8) or b"70"))
"""
NAMES = ("kubechronicle", "kubectl-chronicle")
# Commands that become kubectl, or go on until they are ended: they run as programs of their own.
ITSELF = ("at", "because", "feed", "serve", "ui", "up")


def write_callers(folder: Path, path: Path) -> None:
    """Write the programs that ask the process at the socket."""
    folder.mkdir()
    for name in NAMES:
        programs = f"{Path(sys.executable).parent}/"
        text = CALLER.format(python=sys.executable, path=str(path), itself=ITSELF, programs=programs)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@contextlib.contextmanager
def quick_commands(folder: Path) -> Iterator[None]:
    """Put the programs into a folder, and run the process that they ask within the block."""
    path = folder.with_suffix(".socket")
    write_callers(folder, path)
    with subprocess.Popen(
        [sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _take(connection: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Receive a request, and put its open files into the places of our own."""
    size, control, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    files = array.array("i", control[0][2])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        if not (more := connection.recv(65536)):
            raise ConnectionError("the caller has ended")
        text += more
    argv, directory, environment = json.loads(text)
    return argv, directory, environment


def _run(connection: socket.socket) -> int:
    from kubechronicle.ops import cli

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    argv, directory, environment = _take(connection)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    try:
        return cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _answer(connection: socket.socket) -> None:
    """Run a request in a child, which sends its exit code to the caller."""
    if os.fork():
        return
    code = 70
    try:
        code = _run(connection)
    finally:
        connection.sendall(str(code).encode())
        os._exit(0)


def serve(path: str) -> None:
    from kubechronicle.ops.client.command_table import COMMANDS

    for name in COMMANDS:
        importlib.import_module(f"kubechronicle.ops.client.commands.{name.replace('-', '_')}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                _answer(connection)


if __name__ == "__main__":
    serve(sys.argv[1])
