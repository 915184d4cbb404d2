"""Forks of the template (template.py), with the methods of subprocess.Popen that ServerProcess needs."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

TEMPLATE: Final = Path(__file__).with_name("template.py")
PATIENCE: Final = 120.0  # seconds
_LONGEST: Final = 64
"""Bytes of a message about an outcome; more than any number has."""


def send_request(
    requests: socket.socket,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    descriptors: tuple[int, int, int, int],
    *,
    remove: str = "",
) -> None:
    """Ask a template for a fork. ``remove``: a directory to be removed when the fork has ended."""
    request = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "directory": os.getcwd(),
        "remove": remove,
    }
    socket.send_fds(requests, [json.dumps(request).encode()], descriptors)


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end (SO_PEERCRED of unix(7))."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


class TemplateEnded(Exception):
    """The template ended before it made the fork."""


class Fork:
    """A process that a template has forked. ``stdout`` is its output, as text.

    Raises TemplateEnded, and as subprocess.Popen does, TimeoutExpired.
    """

    def __init__(self, outcome: socket.socket, stdout: IO[str]) -> None:
        self.stdout = stdout
        self.returncode: int | None = None
        self._outcome = outcome
        pid = outcome.recv(_LONGEST)
        if not pid:
            raise TemplateEnded
        self.pid = int(pid)

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number for a killed process, None while it runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._outcome.settimeout(timeout)
            try:
                status = self._outcome.recv(_LONGEST)
            except (BlockingIOError, TimeoutError):
                return None
            self._outcome.close()
            # Without a status, the watcher was killed, and the fork is nobody's.
            self.returncode = os.waitstatus_to_exitcode(int(status)) if status else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def request_fork(
    requests: socket.socket,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stderr: IO[str],
    remove: str = "",
) -> Fork:
    """Return a fork of a template. Its standard input is empty. It is stopped when this process ends. TemplateEnded."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    output, theirs_output = os.pipe()
    stdin = os.open(os.devnull, os.O_RDONLY)
    try:
        descriptors = (stdin, theirs_output, stderr.fileno(), theirs.fileno())
        send_request(requests, arguments, environment, descriptors, remove=remove)
    finally:
        theirs.close()
        os.close(theirs_output)
        os.close(stdin)
    return Fork(ours, os.fdopen(output, encoding="utf-8", errors="replace"))


class Forks:
    """One template, started at the first fork. It ends with this process."""

    def __init__(self) -> None:
        self._requests: socket.socket | None = None

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], *, stderr: IO[str]) -> Fork:
        """Run the command in a fork: ``arguments`` has the program first. Its standard input is empty."""
        return request_fork(self._template(), arguments, environment, stderr=stderr)

    def run(self, arguments: Sequence[str], *, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Kill it after ``timeout`` seconds."""
        with tempfile.TemporaryFile("w+") as errors:
            process = self.start(arguments, os.environ, stderr=errors)
            timer = threading.Timer(timeout, process.kill)
            timer.start()
            try:
                output, code = process.stdout.read(), process.wait()
            finally:
                timer.cancel()
                process.stdout.close()
            errors.seek(0)
            return subprocess.CompletedProcess(arguments, code, output, errors.read())

    def _template(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", str(TEMPLATE), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            atexit.register(process.wait)
            atexit.register(self._requests.close)  # called first
        return self._requests
