"""A hot standby of a test's Postgres, with streaming replication. Synchronous, like postgres_fixture."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from postgres_fixture import PostgresServer, _unprivileged, binaries, free_port, run_as_postgres

TIMEOUT = 60.0  # seconds, on a machine busy with other tests


def psql(server: PostgresServer, statement: str, *, database: str = "postgres") -> str:
    tools = binaries()
    assert tools is not None
    url = server.url.rsplit("/", 1)[0] + f"/{database}"
    command = [str(tools / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Run a hot standby, which replicates asynchronously; stop and remove it at the end."""
    tools = binaries()
    assert tools is not None
    directory = Path(tempfile.mkdtemp(prefix="kubechronicle-standby-"))
    directory.chmod(0o755)
    identity = _unprivileged()
    if identity:
        os.chown(directory, identity["user"], identity["group"])  # type: ignore[arg-type]
    server = PostgresServer(directory=directory, port=free_port(), settings=("fsync=off", "hot_standby=on"))
    try:
        source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
        data = str(directory / "data")
        run_as_postgres(
            server.directory,
            str(tools / "pg_basebackup"),
            *source,
            "-D",
            data,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def wait_replayed(primary: PostgresServer, standby: PostgresServer) -> None:
    """Return when the standby has everything that is committed on the primary."""
    position = psql(primary, "select pg_current_wal_lsn()")
    _wait(lambda: psql(standby, f"select pg_last_wal_replay_lsn() >= '{position}'") == "t")


def stop_replication(standby: PostgresServer) -> None:
    """Let the standby receive nothing more: later commits are lost when it is promoted."""
    psql(standby, "alter system set primary_conninfo = ''")
    psql(standby, "select pg_reload_conf()")
    _wait(lambda: psql(standby, "select count(*) from pg_stat_wal_receiver") == "0")


def promote(standby: PostgresServer) -> None:
    assert psql(standby, f"select pg_promote(true, {TIMEOUT:.0f})") == "t"


def _wait(look: object) -> None:
    assert callable(look)
    end = time.monotonic() + TIMEOUT
    while not look():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
