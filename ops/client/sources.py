"""The source of the history that a command asks: the server of the kubeconfig, or archives (--archive).

Archives are answered by a server of their own (`serve --ephemeral --ephemeral-archive`), which this module starts for
one command. So a command asks the same questions of both, and its answers name the archive and its range.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.errors import OperatorError

SERVER: Final = ("-P", "-m", "kubechronicle.ops.cli", "serve", "--ephemeral", "--secure-port=0")
HELD: Final = re.compile(r"archive (.+)")
READY: Final = re.compile(r"kubechronicle is ready at \S+; try: kubectl --kubeconfig (\S+) ")
STOPPING: Final = 40.0  # seconds
PR_SET_PDEATHSIG: Final = 1
"""Linux: the signal that a process gets when its parent dies."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the server and the user, and --archive, to a command that only asks."""
    kubeconfig.add_flags(parser)
    parser.add_argument(
        "--archive",
        metavar="PATH[@N-M]",
        default="",
        help="ask the archives in this directory, or this Parquet file, instead of a server; @N-M: these revisions",
    )


def target_of(arguments: argparse.Namespace) -> kubeconfig.ClusterTarget:
    """Return the source that the arguments name; an archive's server runs until ``close``. OperatorError."""
    given = getattr(arguments, "archive", "")
    if not given:
        return kubeconfig.load(arguments)
    if arguments.kubeconfig or arguments.server or arguments.context:
        raise OperatorError("--archive and a server exclude each other")
    if getattr(arguments, "archive_server", None) is None:
        arguments.archive_server = _ArchiveServer(given)
    server: _ArchiveServer = arguments.archive_server
    arguments.kubeconfig = str(server.kubeconfig)
    target = kubeconfig.load(arguments)
    target.source = f"in the archive {server.held}"
    return target


def close(arguments: argparse.Namespace) -> None:
    """End the server of an archive."""
    server = getattr(arguments, "archive_server", None)
    if server is not None:
        server.close()


class _ArchiveServer:
    """A server on archives. ``held``: what they have. ``kubeconfig``: of its administrator."""

    def __init__(self, given: str) -> None:
        """Start the server, wait until it is ready, and print what the archives have. OperatorError."""
        import subprocess  # few commands ask an archive, and all start with this module

        path, _, bounds = given.partition("@")
        absolute = str(Path(path).expanduser().absolute()) + (f"@{bounds}" if bounds else "")
        self._process = subprocess.Popen(
            [sys.executable, *SERVER, f"--ephemeral-archive={absolute}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        assert self._process.stdout is not None
        self.held = ""
        for line in self._process.stdout:
            if found := HELD.match(line):
                self.held = found[1]
            elif ready := READY.search(line):
                self.kubeconfig = Path(ready[1]).absolute()
                terminal.stderr().line(f"asking the archive {self.held}")
                return
        _, problem = self._process.communicate(timeout=STOPPING)
        last = problem.strip().rpartition("\n")[2].removeprefix("kubechronicle: ")
        raise OperatorError(last.replace("--ephemeral-archive", "--archive") or "the archive cannot be served")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(STOPPING)


def _die_with_parent() -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
