"""The directory of the embedded cluster: making and configuring it. The functions block and leave no process behind.

    DATA_DIR/postgres/                    the cluster, owned by the account Postgres runs as, mode 0700
    DATA_DIR/postgres/kubechronicle.conf  ours; rewritten for another version of Postgres or kubechronicle
    DATA_DIR/postgres/postgresql.conf     the operator's; includes ours, lines after the include win
    DATA_DIR/postgres/.s.PGSQL.5432       the socket; no TCP port is open, and only the owner can enter the directory
    DATA_DIR/postgres.log                 the output of Postgres

Invariant: DATA_DIR/postgres is a complete cluster. initdb works in DATA_DIR/postgres.new, which is renamed at the end.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kubechronicle.ops.errors import PostgresFailed
from kubechronicle.ops.postgres import launcher as postgres_launcher
from kubechronicle.ops.postgres.binaries import Programs, find_programs
from kubechronicle.ops.postgres.processes import Account, account_for, end_leftovers, give

SUPERUSER = "kubechronicle"
DATABASE = "postgres"
PORT = 5432  # only a part of the socket's name
SOCKET = f".s.PGSQL.{PORT}"
# sizeof(sockaddr_un.sun_path) without its final zero byte: 108 on Linux, 104 on the BSDs and macOS.
SOCKET_PATH_MAX = 107 if sys.platform == "linux" else 103
INITDB_TIMEOUT = 120.0  # seconds; 0.5 on an idle machine, much more with the fsyncs of a slow disk
LOG_KEPT = 10 * 1024 * 1024  # bytes of postgres.log; a larger one becomes postgres.log.1 at the next start

# An acknowledged write must be durable: the first four lines are Postgres' defaults, made explicit.
CONFIGURATION = """
fsync = on
synchronous_commit = on
full_page_writes = on
wal_level = replica
listen_addresses = ''
port = {port}
unix_socket_directories = '.'
unix_socket_permissions = 0700
cluster_name = 'kubechronicle'
max_connections = 50                # one server and its operator's tools
shared_buffers = 80MB               # existing objects are in the server's memory; these serve writes and history
max_wal_size = 2GB
checkpoint_timeout = 15min
wal_compression = {wal_compression}
default_toast_compression = {toast_compression}
jit = off                           # short statements only
timezone = 'UTC'
log_timezone = 'UTC'
log_min_messages = warning
log_line_prefix = '%m [%p] '
log_checkpoints = off
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCluster:
    """A prepared cluster and the programs that run it."""

    directory: Path
    programs: Programs
    account: Account | None
    log_file: Path


def prepare(data_dir: Path) -> DatabaseCluster:
    """Find programs, end processes of a killed server, make the cluster if there is none, and configure it.

    The caller holds the lock. This takes milliseconds for an existing cluster, about a second for a new one.
    """
    directory = data_dir / "postgres"
    log_file = data_dir / "postgres.log"
    try:
        account = account_for(directory)
        programs = find_programs(major=_major(directory), account=account)
        if directory.exists():
            end_leftovers(directory)
            give(directory, account)
        else:
            _create(data_dir / "postgres.new", directory, programs, account)
        _configure(directory, programs, account)
        if log_file.exists() and log_file.stat().st_size > LOG_KEPT:
            log_file.replace(data_dir / "postgres.log.1")
    except (OSError, shutil.Error, UnicodeDecodeError) as error:  # the disk is full, or a file is not what it should be
        raise PostgresFailed(f"cannot prepare the database in {directory}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise PostgresFailed(
            f"initdb took longer than {INITDB_TIMEOUT:g} s; is the disk of {directory} slow?"
        ) from error
    return DatabaseCluster(directory=directory, programs=programs, account=account, log_file=log_file)


def launch_command(directory: Path, account: Account | None, *command: str | Path) -> list[str]:
    """Return the command line of the launcher, which runs ``command`` as the account.

    ``{cluster}`` stands for a path of the cluster that the account can use.
    """
    uid, gid = (account.uid, account.gid) if account is not None else (-1, -1)
    launcher = [sys.executable, "-I", "-S", postgres_launcher.__file__, str(os.getpid()), str(uid), str(gid)]
    return [*launcher, str(directory), *(str(part) for part in command)]


def environment() -> dict[str, str]:
    """Return an environment without variables that change Postgres (PGPORT, PGDATA, LC_*)."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def socket_url(directory: Path) -> str:
    """Return the URL of the cluster's socket for this process.

    A path too long for a socket address is replaced by a descriptor, which stays open as long as the process lives.
    """
    host = str(directory.absolute())
    if len(os.fsencode(f"{host}/{SOCKET}")) > SOCKET_PATH_MAX:
        if sys.platform != "linux":
            raise PostgresFailed(f"the path {host} is too long for a socket; choose a shorter --data-dir")
        host = f"/proc/self/fd/{os.open(host, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}"
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(host, safe='')}&port={PORT}"


def _major(directory: Path) -> int | None:
    try:
        return int((directory / "PG_VERSION").read_text().split(".")[0])
    except ValueError:
        raise PostgresFailed(f"{directory}/PG_VERSION names no version: the database is damaged") from None
    except FileNotFoundError:
        if directory.exists() and any(directory.iterdir()):
            raise PostgresFailed(
                f"{directory} is not a Postgres cluster; move it away or choose another --data-dir"
            ) from None
        return None


def _create(unfinished: Path, directory: Path, programs: Programs, account: Account | None) -> None:
    if unfinished.exists():  # its initdb was killed
        end_leftovers(unfinished)
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    give(unfinished, account)
    options = ("--encoding=UTF8", "--locale=C", "--data-checksums", "--auth-local=trust", "--auth-host=reject")
    command = launch_command(
        unfinished, account, programs.initdb, "-D", "{cluster}", "-U", SUPERUSER, "--no-instructions", *options
    )
    answer = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=INITDB_TIMEOUT,
        check=False,
        start_new_session=True,
    )
    if answer.returncode != 0:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        reasons = (line for line in lines if "error" in line.lower() or "fatal" in line.lower())
        message = next(reasons, lines[-1] if lines else "no message")
        raise PostgresFailed(f"initdb of Postgres {programs.version} failed: {message.strip()}")
    conf = unfinished / "postgresql.conf"
    conf.write_text("# Yours to edit. Lines after the include override it.\ninclude 'kubechronicle.conf'\n")
    _configure(unfinished, programs, account)
    unfinished.rename(directory)
    _sync_directory(directory.parent)


def _configure(directory: Path, programs: Programs, account: Account | None) -> None:
    """Write kubechronicle.conf unless it is by this version of Postgres and kubechronicle."""
    path = directory / "kubechronicle.conf"
    edition = hashlib.sha256(CONFIGURATION.encode()).hexdigest()[:12]
    heading = f"# By kubechronicle for Postgres {programs.version} ({edition}). Your own settings: postgresql.conf\n"
    if path.exists() and path.read_text().startswith(heading):
        return
    path.touch()
    give(directory, account)
    method = "lz4" if _has_lz4(directory, programs, account) else "pglz"
    path.write_text(heading + CONFIGURATION.format(port=PORT, wal_compression=method, toast_compression=method))


def _has_lz4(directory: Path, programs: Programs, account: Account | None) -> bool:
    """Check that this Postgres was built with lz4: otherwise it rejects the setting."""
    command = launch_command(
        directory,
        account,
        programs.postgres,
        "-D",
        "{cluster}",
        "-c",
        "default_toast_compression=lz4",
        "-C",
        "default_toast_compression",
    )
    answer = subprocess.run(command, env=environment(), capture_output=True, timeout=INITDB_TIMEOUT, check=False)
    return answer.returncode == 0


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
