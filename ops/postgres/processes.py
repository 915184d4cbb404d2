"""Which processes work in a cluster's directory, and how they are ended when their server is gone.

Used only by the holder of the cluster's lock: whatever still runs there then belongs to a server that was killed.

A pid file proves nothing: after a crash the number may belong to a stranger (in a container, nearly always does), and a
postmaster that was killed leaves backends which still write. So on Linux a process counts if its working directory is
the cluster, which is true of every Postgres process and of nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kubechronicle.ops.errors import PostgresFailed

log = logging.getLogger(__name__)

# Seconds for each kind of goodbye: fast shutdown writes a checkpoint, immediate shutdown and SIGKILL write nothing.
STAGES = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
LOOK_INTERVAL = 0.02
STALE_SOCKET = (".s.PGSQL.5432.lock", ".s.PGSQL.5432")


def read_pid(cluster: Path) -> int | None:
    """The postmaster's pid as its pid file tells it, None if there is none."""
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def working_in(cluster: Path) -> set[int]:
    """The Postgres processes of this cluster."""
    if sys.platform != "linux":
        pid = read_pid(cluster)
        return {pid} if pid is not None and _is_postgres(pid) else set()
    wanted = cluster.stat()
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            at = os.stat(f"/proc/{entry}/cwd")
            program = os.path.basename(os.readlink(f"/proc/{entry}/exe"))
        except OSError:  # ended meanwhile, or not ours to look at
            continue
        if (at.st_dev, at.st_ino) == (wanted.st_dev, wanted.st_ino) and program.startswith("postgres"):
            found.add(int(entry))
    return found


def _is_postgres(pid: int) -> bool:
    answer = subprocess.run(["ps", "-p", str(pid), "-o", "comm="], capture_output=True, text=True, check=False)
    return "postgres" in answer.stdout


def end_leftovers(cluster: Path) -> None:
    """Stop what a killed server left running, and remove its stale lock files. Blocks, at most the sum of STAGES.

    The files go only when no process of the cluster is left: they are Postgres' own guard against two postmasters, but
    it takes the pid in them for its author's even when that is a zombie or a stranger.
    """
    left = working_in(cluster)
    if left:
        log.warning("Ending the Postgres a killed server left behind", extra={"processes": len(left)})
    for sign, seconds in STAGES:
        if not left:
            break
        postmaster = read_pid(cluster)
        # A living postmaster ends its own backends; without one each is told by itself.
        for pid in [postmaster] if postmaster in left and sign is signal.SIGINT else left:
            _signal(pid, sign)
        left = _wait_gone(cluster, seconds)
    if left:
        raise PostgresFailed(f"Postgres process {min(left)} works in {cluster} and does not end; end it by hand")
    for stale in ("postmaster.pid", *STALE_SOCKET):
        (cluster / stale).unlink(missing_ok=True)


def _signal(pid: int | None, sign: signal.Signals) -> None:
    try:
        if pid is not None:
            os.kill(pid, sign)
    except ProcessLookupError:
        pass


def _wait_gone(cluster: Path, seconds: float) -> set[int]:
    until = time.monotonic() + seconds
    while (left := working_in(cluster)) and time.monotonic() < until:
        time.sleep(LOOK_INTERVAL)
    return left
