"""The processes that work in a cluster's directory, and how to end those of a killed server.

Only the holder of the cluster's lock uses this module: a process that still runs there belongs to a killed server.

A pid file proves nothing. After a crash the number may belong to another program (in a container, it nearly always
does), and a killed postmaster leaves backends that still write. So on Linux a process belongs to the cluster if the
cluster is its working directory: that is true of every Postgres process and of no other.
"""

from __future__ import annotations

import logging
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.errors import PostgresFailed

log = logging.getLogger(__name__)

# Signals and seconds to wait: fast shutdown writes a checkpoint, immediate shutdown and SIGKILL write nothing.
STAGES = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
LOOK_INTERVAL = 0.02
STALE_SOCKET = (".s.PGSQL.5432.lock", ".s.PGSQL.5432")


def read_pid(cluster: Path) -> int | None:
    """Return the postmaster's pid from its pid file, None if there is none."""
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def working_in(cluster: Path) -> set[int]:
    """Return the pids of the cluster's Postgres processes."""
    if sys.platform != "linux":
        pid = read_pid(cluster)
        return {pid} if pid is not None and _is_postgres(pid) else set()
    wanted = cluster.stat()
    pids = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            folder = os.stat(f"/proc/{entry}/cwd")
            program = os.path.basename(os.readlink(f"/proc/{entry}/exe"))
        except OSError:  # it ended meanwhile, or we may not read it
            continue
        if (folder.st_dev, folder.st_ino) == (wanted.st_dev, wanted.st_ino) and program.startswith("postgres"):
            pids.add(int(entry))
    return pids


def _is_postgres(pid: int) -> bool:
    answer = subprocess.run(["ps", "-p", str(pid), "-o", "comm="], capture_output=True, text=True, check=False)
    return "postgres" in answer.stdout


def end_leftovers(cluster: Path) -> None:
    """End processes of a killed server, and remove its stale lock files. Block for at most the sum of STAGES.

    The files are Postgres' own guard against two postmasters, so they are removed only when no process is left.
    Postgres would also respect a pid in them that now belongs to a zombie or to another program.
    """
    left = working_in(cluster)
    if left:
        log.warning("Ending the Postgres of a killed server", extra={"processes": len(left)})
    for sign, seconds in STAGES:
        if not left:
            break
        postmaster = read_pid(cluster)
        # A running postmaster ends its own backends; without one, signal each of them.
        for pid in [postmaster] if postmaster in left and sign is signal.SIGINT else left:
            _signal(pid, sign)
        left = _wait_gone(cluster, seconds)
    if left:
        raise PostgresFailed(f"Postgres process {min(left)} works in {cluster} and does not end; end it manually")
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


# -- account -----------------------------------------------------------------------------------------------------------
#
# The user account of the embedded Postgres, which refuses to run as root.


# Tried in this order. FALLBACK_ID needs no entry in /etc/passwd: distroless images have none.
ACCOUNT_NAMES = ("postgres", "nobody")
FALLBACK_ID = 65534


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Check by mode bits that the user may read and execute the file and enter all folders above it."""
        resolved = path.resolve()
        return self._may(resolved, read=True) and all(self._may(parent, read=False) for parent in resolved.parents)

    def _may(self, path: Path, *, read: bool) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        wanted = (stat.S_IROTH if read else 0) | stat.S_IXOTH
        return (status.st_mode >> shift) & wanted == wanted


def account_for(cluster: Path) -> Account | None:
    """Return the account for a cluster: its owner if that is not root, otherwise the first that exists.

    None if this process is not root: then Postgres runs as the same user.
    """
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ACCOUNT_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(uid=FALLBACK_ID, gid=FALLBACK_ID)


def give(directory: Path, account: Account | None) -> None:
    """Make the account the owner of the whole folder, so that a cluster restored by root starts."""
    if account is None:
        return
    for parent, directories, files in os.walk(directory):
        for path in [parent, *(os.path.join(parent, name) for name in directories + files)]:
            status = os.lstat(path)
            if (status.st_uid, status.st_gid) != (account.uid, account.gid):
                os.lchown(path, account.uid, account.gid)
