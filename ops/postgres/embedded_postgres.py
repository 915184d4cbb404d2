"""The embedded Postgres: started with the server, restarted when it dies, stopped with the server.

    async with embedded_postgres(data_dir) as url: ...    # holds DATA_DIR/postgres.lock meanwhile
    async with starting_postgres(data_dir) as running:    # the same without waiting
        url = await running()

Failures:
    server killed (-9)      Linux signals the postmaster at once (launcher.py); the next start waits for its end
    postmaster killed (-9)  its backends notice and end; `keep_running` restarts it; crash recovery replays the WAL
    machine crashed         the next start removes the stale pid file (processes.py)
    two servers on one dir  the second reports that the lock is held

Invariant: only the holder of the lock launches a postmaster, and only when no process works in the cluster. Before the
launch it begins a new epoch, which ends the guarantees of the old one (eventlog/consistency.py).
The main thread launches the database: the signal at the parent's death is tied to that thread, not to the process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.ops.data_dir import Held, locked, make_data_dir
from kubechronicle.ops.errors import OperatorError, PostgresFailed
from kubechronicle.ops.postgres.cluster import DatabaseCluster, environment, launch_command, prepare, socket_url
from kubechronicle.ops.postgres.processes import STAGES, end_leftovers

log = logging.getLogger(__name__)

START_TIMEOUT = 600.0  # seconds; crash recovery of a full max_wal_size on a slow disk takes minutes
READY_INTERVAL = 0.01  # seconds between reads of the pid file's status line; a start takes 0.1
SLOW_START = 5.0  # seconds after which a start that still runs is logged
FIRST_BACKOFF = 0.1  # seconds before the first restart, doubled each time …
MAX_BACKOFF = 5.0  # … up to this, so that a repaired disk is noticed soon
HEALTHY_AFTER = 60.0  # seconds of life after which the back-off restarts
STATUS_LINE = 7  # of postmaster.pid (LOCK_FILE_LINE_PM_STATUS in miscadmin.h, from 0)


@dataclass(frozen=True, slots=True)
class Running:
    """A running or starting database."""

    url: Callable[[], Awaitable[str]]
    postmaster_epoch: PostmasterEpoch | None = None
    """The epoch of its postmaster; None if this process does not run it."""

    async def __call__(self) -> str:
        """Wait until it accepts connections, and return its URL. Call this once. Raise OperatorError."""
        return await self.url()


@asynccontextmanager
async def embedded_postgres(data_dir: Path) -> AsyncGenerator[str]:
    """Keep a database in DATA_DIR/postgres running until the block is left, and yield its URL.

    Raise OperatorError if another server uses it, no Postgres is installed, or it does not start.
    """
    async with starting_postgres(data_dir) as running:
        yield await running()


def has_cluster(data_dir: Path) -> bool:
    """Check that the folder has a database."""
    return (data_dir / "postgres").exists()


@asynccontextmanager
async def starting_postgres(data_dir: Path, failures: TaskFailures | None = None) -> AsyncGenerator[Running]:
    """Start a database in DATA_DIR/postgres without waiting for it, and stop it at the end. Raise OperatorError.

    ``failures``: the account of failed tasks.
    """
    account = failures if failures is not None else TaskFailures()
    try:
        await trio.to_thread.run_sync(make_data_dir, data_dir)
        with locked(data_dir / "postgres.lock", wait=False):
            server = _Postmaster(await trio.to_thread.run_sync(prepare, data_dir))
            async with trio.open_nursery() as nursery:

                async def running() -> str:
                    await server.wait_ready()
                    keeping = partial(keep_running, "postgres", plain(server.keep_running), account, returns=True)
                    nursery.start_soon(keeping)
                    return socket_url(server.cluster.directory)

                try:
                    server.launch()
                    yield Running(running, server.postmaster_epoch)
                finally:
                    with trio.CancelScope(shield=True):
                        await server.stop()
                    nursery.cancel_scope.cancel()
    except Held as held:
        raise OperatorError(
            f"data directory {data_dir} is in use by process {held.pid}; stop it or choose another --data-dir"
        ) from None
    except PermissionError as error:
        raise OperatorError(f"cannot use data directory {data_dir}: {error.strerror}: {error.filename}") from error


def url_of_running(data_dir: Path) -> str | None:
    """Return the URL of the database if a server runs it now, otherwise None."""
    if not has_cluster(data_dir):
        return None
    try:
        with locked(data_dir / "postgres.lock", wait=False):
            return None
    except Held:
        return socket_url(data_dir / "postgres")


class _Postmaster:
    """The postmaster, a child of this process."""

    def __init__(self, cluster: DatabaseCluster) -> None:
        self.cluster = cluster
        self.postmaster_epoch = PostmasterEpoch()
        self._process: subprocess.Popen[bytes] | None = None
        self._launched_at = 0.0  # by the monotonic clock
        self._log_start = 0  # bytes of the log file at the launch
        self._stopping = False

    async def keep_running(self) -> None:
        """Restart the postmaster whenever it dies, until `stop`."""
        backoff = FIRST_BACKOFF
        while True:
            began = time.monotonic()
            code = await self._wait_exit()
            if self._stopping:
                return
            if time.monotonic() - began > HEALTHY_AFTER:
                backoff = FIRST_BACKOFF
            log.error("Postgres died; restarting it", extra={"status": code, "log": str(self.cluster.log_file)})
            await trio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            try:
                await trio.to_thread.run_sync(end_leftovers, self.cluster.directory)
                if not self._stopping:
                    self.launch()
                    await self.wait_ready()
            except PostgresFailed as error:
                log.error("Postgres did not restart", extra={"err": str(error)})

    def launch(self) -> None:
        """Launch the postmaster. Call this in the main thread (see above), which it blocks for a few milliseconds."""
        self.postmaster_epoch.begin()
        cluster = self.cluster
        command = launch_command(cluster.directory, cluster.account, cluster.programs.postgres, "-D", "{cluster}")
        self._log_start = cluster.log_file.stat().st_size if cluster.log_file.exists() else 0
        self._launched_at = time.monotonic()
        with open(cluster.log_file, "ab", opener=_private) as output:
            self._process = subprocess.Popen(
                command,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the terminal reaches the server, which stops Postgres last
            )

    async def stop(self) -> None:
        """Shut down fast, then harder. This takes as long as a checkpoint."""
        self._stopping = True
        if self._process is None or self._process.poll() is not None:
            return
        for sign, seconds in STAGES:
            # Repeat the signal: a process started in the background of a shell ignores SIGINT, and so does a starting
            # Postgres, until it has its own handler.
            for _ in range(int(seconds)):
                self._process.send_signal(sign)
                with trio.move_on_after(1):
                    await self._wait_exit()
                    return
            log.warning("Postgres does not stop", extra={"signal": sign.name, "seconds": seconds})

    async def wait_ready(self) -> None:
        """Wait until it accepts connections. Raise PostgresFailed with Postgres' own message."""
        cluster, process, logged = self.cluster, self._process, False
        if process is None:
            return
        while not _ready(cluster.directory, process.pid):
            if process.poll() is not None:
                raise PostgresFailed(f"Postgres did not start: {_last_words(cluster.log_file, self._log_start)}")
            waited = time.monotonic() - self._launched_at
            if waited > START_TIMEOUT:
                process.send_signal(signal.SIGQUIT)
                raise PostgresFailed(f"Postgres is not ready after {waited:.0f} s; see {cluster.log_file}")
            if waited > SLOW_START and not logged:
                logged = True
                log.info("Waiting for Postgres; it may be replaying its log", extra={"log": str(cluster.log_file)})
            await trio.sleep(READY_INTERVAL)
        log.info(
            "Postgres is running",
            extra={"version": cluster.programs.version, "pid": process.pid, "dir": str(cluster.directory)},
        )

    async def _wait_exit(self) -> int:
        """Return the exit status. A cancellation leaves the waiting thread behind; it ends with the process."""
        process = self._process
        if process is None:
            return 0
        return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _ready(directory: Path, pid: int) -> bool:
    """Check that the postmaster with this pid reports that it accepts connections."""
    try:
        lines = (directory / "postmaster.pid").read_text().split("\n")
    except FileNotFoundError:
        return False
    return lines[0] == str(pid) and len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"


def _last_words(log_file: Path, begin: int) -> str:
    """Return the line that Postgres wrote since ``begin`` and that most likely names the problem."""
    with open(log_file, "rb") as file:
        file.seek(begin)
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "FATAL" in line or "PANIC" in line or "rror" in line]
    words = (errors or lines or ["there is no output"])[-1]
    return f"{words.strip()} (see {log_file})"
