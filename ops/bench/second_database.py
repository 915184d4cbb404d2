"""A second Postgres for the benchmark: an embedded one in a directory of its own, for --database-url-overrides."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.development.server_process import postmaster
from kubechronicle.ops.postgres.cluster import environment, launch_command, prepare, socket_url

START_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class SecondDatabase:
    """``postmaster``: its process id. ``flags``: of a server that has Events and Leases in it."""

    postmaster: int
    flags: tuple[str, ...]


@contextlib.contextmanager
def second_database(directory: Path | None = None) -> Iterator[SecondDatabase]:
    """Run an embedded Postgres within the block, below ``directory`` (default: for temporary files)."""
    home = Path(tempfile.mkdtemp(prefix="kubechronicle-second-", dir=directory))
    home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
    try:
        cluster = prepare(home)
        command = launch_command(cluster.directory, cluster.account, cluster.programs.postgres, "-D", "{cluster}")
        with subprocess.Popen(command, env=environment(), start_new_session=True) as process:
            try:
                url = socket_url(cluster.directory)
                flag = f"/events#{url},coordination.k8s.io/leases#{url}"
                yield SecondDatabase(_wait_ready(cluster.directory), ("--database-url-overrides", flag))
            finally:
                process.terminate()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait_ready(cluster: Path) -> int:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        pid = postmaster(cluster)
        if pid is not None and "ready" in (cluster / "postmaster.pid").read_text():
            return pid
        time.sleep(0.05)
    raise SystemExit("the second Postgres does not start")
