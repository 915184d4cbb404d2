"""`kubechronicle serve --ephemeral` as users start it: a fork of a prepared process that serves this user's starts.

The first start begins that process (template.py), which takes as long as any start. It stays, without a server, for
--ephemeral-linger, and makes the next start fast. It listens on an abstract socket, of which no file remains. Its name
has a digest of the program: a changed program begins a process of its own.

This process passes its standard streams on, forwards signals, and returns the server's exit code. It imports little.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubechronicle.ops.ephemeral.forks import TEMPLATE, peer_user, send_request

LINGER: Final = "--ephemeral-linger"
DEFAULT_LINGER: Final = 300.0
FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONNECTING: Final = 5.0  # seconds until a new prepared process listens
PAUSE: Final = 0.01
_LONGEST: Final = 64  # bytes of a message about an outcome


def launch(argv: Sequence[str], run_here: Callable[[Sequence[str]], int]) -> int:
    """Run the server until it ends, and return its exit code.

    ``run_here``: runs it in this process, where there is no prepared one.
    """
    remove, argv = "", list(argv)
    if not any(each.partition("=")[0] == "--data-dir" for each in argv):
        remove = tempfile.mkdtemp(prefix="kubechronicle-")
        argv.append(f"--data-dir={remove}")
    try:
        linger = _linger(argv)
        connection = connect(linger) if sys.platform == "linux" and linger > 0 else None
        if connection is None:
            return run_here(argv)
        with connection:
            code = _follow(connection, argv, remove)
        return run_here(argv) if code is None else code
    finally:
        if remove:
            shutil.rmtree(remove, ignore_errors=True)


def _linger(argv: Sequence[str]) -> float:
    """Return the seconds of --ephemeral-linger; 0.0 for a value that the server will refuse."""
    for place, argument in enumerate(argv):
        name, sign, value = argument.partition("=")
        if name == LINGER:
            from kubechronicle.ops.settings.conversion import seconds

            try:
                return seconds(value if sign else argv[place + 1])
            except (ValueError, IndexError):
                return 0.0
    return DEFAULT_LINGER


def connect(linger: float = DEFAULT_LINGER) -> socket.socket | None:
    """Return a connection to the prepared process, which is begun if there is none. None: there can be none."""
    name = f"kubechronicle-{os.getuid()}-{_digest()}"
    started, latest = False, time.monotonic() + CONNECTING
    while time.monotonic() < latest:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect("\0" + name)
        except OSError:
            connection.close()
        else:
            if os.getuid() == peer_user(connection):
                return connection
            connection.close()
            return None
        if not started:
            started = True
            command = [sys.executable, "-P", str(TEMPLATE), "--listen", name, "--linger", str(linger)]
            nothing = subprocess.DEVNULL
            subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")
        time.sleep(PAUSE)
    return None


def _follow(connection: socket.socket, argv: Sequence[str], remove: str) -> int | None:
    """Request the fork, forward signals to it, and return its exit code. None: the prepared process ended before."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        pending: list[int] = []
        for each in FORWARDED:
            signal.signal(each, lambda received, _: pending.append(received))
        with theirs:
            descriptors = (0, 1, 2, theirs.fileno())
            send_request(connection, [sys.argv[0], *argv], os.environ, descriptors, remove=remove)
        pid = int(ours.recv(_LONGEST) or b"0")
        if not pid:
            return None

        def forward(number: int, _: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for each in FORWARDED:
            signal.signal(each, forward)
        for number in pending:
            forward(number, None)
        status = ours.recv(_LONGEST)
    code = os.waitstatus_to_exitcode(int(status)) if status else -signal.SIGKILL
    return code if code >= 0 else 128 - code


def _digest() -> str:
    """Return a digest of the interpreter and of the times of the program's files."""
    newest = 0
    for folder, _, files in os.walk(Path(__file__).parents[2], followlinks=True):
        if not folder.endswith("__pycache__"):
            paths = (os.path.join(folder, each) for each in files if each.endswith(".py"))
            newest = max([newest, *(os.stat(path).st_mtime_ns for path in paths)])
    named = f"{sys.executable} {Path(TEMPLATE).resolve()} {newest} {sys.flags} {os.environ.get('PYTHONPATH', '')}"
    return hashlib.sha256(named.encode()).hexdigest()[:16]
