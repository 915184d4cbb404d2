"""A Postgres that archives its WAL, and copies of it as of a moment: point-in-time recovery. Synchronous."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from postgres_fixture import PostgresServer, _unprivileged, binaries, free_port, run_as_postgres

from outages.standby import psql

TIMEOUT = 60.0  # seconds, on a machine busy with other tests
# Commands of Postgres run in its data directory. The archive and the base backup are beside it.
ARCHIVING = ("fsync=off", "archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")


def save_base(server: PostgresServer) -> None:
    """Take a base backup of a server that runs with ARCHIVING."""
    tools = binaries()
    assert tools is not None
    source = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    target = str(server.directory / "base")
    run_as_postgres(
        server.directory, str(tools / "pg_basebackup"), *source, "-D", target, "-X", "none", "-c", "fast", "--no-sync"
    )


def save_wal(server: PostgresServer) -> None:
    """Return when all that is committed is in the archive."""
    name = psql(server, "select pg_walfile_name(pg_switch_wal())")
    end = time.monotonic() + TIMEOUT
    while psql(server, f"select last_archived_wal >= '{name}' from pg_stat_archiver") != "t":
        assert time.monotonic() < end, "the archive is late"
        time.sleep(0.05)


@contextlib.contextmanager
def recovered(saved: PostgresServer, moment: str = "") -> Iterator[PostgresServer]:
    """Run a copy of a saved server within the block, as of a moment before its last commit, or as of the end."""
    directory = Path(tempfile.mkdtemp(prefix="kubechronicle-recovered-"))
    directory.chmod(0o755)
    identity = _unprivileged()
    if identity:
        os.chown(directory, identity["user"], identity["group"])  # type: ignore[arg-type]
    settings = (
        "fsync=off",
        f"restore_command=cp {saved.directory}/archive/%f %p",
        *((f"recovery_target_time={moment}", "recovery_target_action=promote") if moment else ()),
    )
    server = PostgresServer(directory=directory, port=free_port(), settings=settings)
    try:
        run_as_postgres(server.directory, "cp", "-a", str(saved.directory / "base"), str(directory / "data"))
        run_as_postgres(server.directory, "touch", str(directory / "data" / "recovery.signal"))
        server.start()
        end = time.monotonic() + TIMEOUT
        while psql(server, "select pg_is_in_recovery()") != "f":
            assert time.monotonic() < end, (directory / "postgres.log").read_text()[-2000:]
            time.sleep(0.05)
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
