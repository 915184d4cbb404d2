"""A real PgBouncer between a test and its Postgres."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import postgres_fixture
import pytest

PREPARED = Path(__file__).parents[3] / ".cache" / "bin"
"""The folder of programs that tests/clients/prepare.sh has fetched."""

_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={database} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
logfile = {directory}/log
"""


@contextlib.contextmanager
def pgbouncer(
    server: postgres_fixture.PostgresServer, *, mode: str = "transaction", size: int = 8, user: str = "postgres"
) -> Iterator[int]:
    """Run PgBouncer before the server; yield its port. Skips the test where there is none.

    Its prepared statements are off, as before version 1.21.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:{PREPARED}")
    if program is None:
        pytest.skip("no pgbouncer on this machine; tests/clients/prepare.sh pgbouncer fetches Debian's")
    port = postgres_fixture.free_port()
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        directory = Path(name)
        text = _CONFIGURATION.format(
            database=server.port, port=port, mode=mode, size=size, user=user, directory=directory
        )
        (directory / "pgbouncer.ini").write_text(text)
        command = [program, "--quiet", str(directory / "pgbouncer.ini")]
        identity: dict[str, object] = {}
        if os.geteuid() == 0:  # it rejects root
            nobody = pwd.getpwnam("nobody")
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        process = subprocess.Popen(command, cwd=directory, **identity)  # type: ignore[call-overload]
        try:
            _wait_open(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _wait_open(port: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError("PgBouncer did not start")
