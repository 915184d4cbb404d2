"""The database of the servers under test: one Postgres that syncs nothing, and a database with a schema to copy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres import cluster as clusters

TEMPLATE: Final = "kc_template"
SETTINGS: Final = (
    "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=600", "shared_buffers=256MB",
    "max_wal_size=4GB", "autovacuum=off",
)  # fmt: skip
START_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Databases:
    """A running cluster. ``psql``: the command. ``environment``: with what leads psql to the cluster."""

    psql: str
    environment: dict[str, str]

    def query(self, text: str) -> str:
        """Return what psql prints; "" if the query fails."""
        done = subprocess.run(
            [self.psql, "-qAt", "-d", "postgres", "-c", text], env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.strip()

    def url(self, name: str) -> str:
        """Return the URL of a database for a server."""
        user, host, port = (self.environment[f"PG{part}"] for part in ("USER", "HOST", "PORT"))
        return f"postgresql://{user}@/{name}?host={host}&port={port}"

    def drop(self, prefix: str) -> None:
        """Drop the databases whose names have a prefix."""
        for name in self.query(f"SELECT datname FROM pg_database WHERE datname LIKE '{prefix}%'").split():
            self.query(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextlib.contextmanager
def running(folder: Path, program: str) -> Iterator[Databases]:
    """Run a cluster below a folder, whose template ``program`` migrates. Raises OperatorError."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = clusters.prepare(folder)
    psql = cluster.programs.directory / "psql"
    command = str(psql) if psql.exists() else shutil.which("psql")
    if command is None:
        raise OperatorError("psql is neither beside the programs of Postgres nor on PATH")
    settings = [part for each in SETTINGS for part in ("-c", each)]
    launch = clusters.launch_command(
        cluster.directory, cluster.account, cluster.programs.postgres, "-D", "{cluster}", *settings
    )
    where = {"PGHOST": str(cluster.directory), "PGPORT": str(clusters.PORT), "PGUSER": clusters.SUPERUSER}
    with cluster.log_file.open("ab") as log:
        process = subprocess.Popen(
            launch, env=clusters.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        databases = Databases(command, os.environ | where)
        _wait(databases, process)
        databases.query(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
        databases.query(f"CREATE DATABASE {TEMPLATE}")
        subprocess.run(
            [program, "migrate", "--database-url", databases.url(TEMPLATE)], check=True, stdout=subprocess.DEVNULL
        )
        yield databases
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait(databases: Databases, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_TIMEOUT
    while databases.query("SELECT 1") != "1":
        if process.poll() is not None or time.monotonic() > end:
            raise OperatorError("the Postgres for the tests does not start")
        time.sleep(0.1)
