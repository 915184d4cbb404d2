"""The embedded Postgres with real processes: started, stopped, killed in every way, and never two on one directory.

Where a test kills the server, a child process (``hold``) stands for it. As root, the tests also cover the drop of
privileges, because Postgres does not start as root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.postgres.binaries import installed
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres, url_of_running
from kubechronicle.ops.postgres.processes import Account, account_for, end_leftovers, read_pid, working_in

PATIENCE = 60.0  # seconds; each step takes a fraction of one on an idle machine

pytestmark = [
    pytest.mark.skipif(not any(True for _ in installed()), reason="no Postgres programs on this machine"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

HOLD = """
import sys, trio
from pathlib import Path
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres
async def main():
    async with embedded_postgres(Path(sys.argv[1])):
        print("running", flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


@contextlib.contextmanager
def hold(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the database in another process, and kill that at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


async def value(url: str, sql: str) -> object:
    async with open_session(url) as session:
        return (await session.fetch(sql))[0][0]


def wait_until_gone(cluster: Path) -> bool:
    end = time.monotonic() + PATIENCE
    while working_in(cluster) and time.monotonic() < end:
        time.sleep(0.01)
    return not working_in(cluster)


async def test_data_survives_a_restart(tmp_path: Path) -> None:
    cluster = tmp_path / "postgres"
    async with embedded_postgres(tmp_path) as url:
        async with open_session(url) as session:
            await session.execute("create table public.t (n int); insert into public.t values (7)")
        assert working_in(cluster)
    assert not working_in(cluster)
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select n from public.t") == 7


async def test_it_is_private_and_durable(tmp_path: Path) -> None:
    async with embedded_postgres(tmp_path) as url:
        wanted = {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "data_checksums": "on",
            "server_encoding": "UTF8",
        }
        assert {name: await value(url, f"select current_setting('{name}')") for name in wanted} == wanted
        assert await value(url, "select datcollate from pg_database where datname = current_database()") == "C"
        assert stat.S_IMODE((tmp_path / "postgres").stat().st_mode) == 0o700
    if os.geteuid() == 0:
        assert (tmp_path / "postgres").stat().st_uid != 0


async def test_the_operators_settings_override_ours(tmp_path: Path) -> None:
    async with embedded_postgres(tmp_path):
        pass
    with (tmp_path / "postgres" / "postgresql.conf").open("a") as file:
        file.write("max_connections = 23\n")
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select current_setting('max_connections')") == "23"


async def test_a_killed_server_leaves_no_postgres(tmp_path: Path) -> None:
    with hold(tmp_path) as server:
        server.kill()
        server.wait()
        assert wait_until_gone(tmp_path / "postgres")
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select 1") == 1


async def test_a_restart_after_a_kill_waits_for_the_old_postgres(tmp_path: Path) -> None:
    for _ in range(3):
        with hold(tmp_path) as server:
            server.kill()
            server.wait()
            async with embedded_postgres(tmp_path) as url:
                assert await value(url, "select 1") == 1


async def test_server_and_postgres_killed_together(tmp_path: Path) -> None:
    with hold(tmp_path) as server:
        postmaster = read_pid(tmp_path / "postgres")
        assert postmaster is not None
        os.kill(postmaster, signal.SIGKILL)
        server.kill()
        server.wait()
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select 1") == 1


async def test_a_killed_postgres_is_restarted(tmp_path: Path) -> None:
    cluster = tmp_path / "postgres"
    async with embedded_postgres(tmp_path) as url:
        first = read_pid(cluster)
        assert first is not None
        os.kill(first, signal.SIGKILL)

        def restarted() -> bool:
            pid_file = cluster / "postmaster.pid"
            return read_pid(cluster) not in (first, None) and "ready" in pid_file.read_text()

        with trio.fail_after(PATIENCE):
            while not restarted():  # noqa: ASYNC110 - another process writes the file
                await trio.sleep(0.01)
        assert await value(url, "select 1") == 1


async def test_two_servers_cannot_share_a_directory(tmp_path: Path) -> None:
    with hold(tmp_path) as server:
        with pytest.raises(OperatorError, match=f"is in use by process {server.pid}; stop it or choose another"):
            async with embedded_postgres(tmp_path):
                pass
        url = url_of_running(tmp_path)
        assert url is not None
        assert await value(url, "select 1") == 1
    assert wait_until_gone(tmp_path / "postgres")
    assert url_of_running(tmp_path) is None


async def test_a_stale_pid_file_does_not_prevent_a_start(tmp_path: Path) -> None:
    """The pid in the file belongs to this test, as happens in a container with few processes."""
    cluster = tmp_path / "postgres"
    async with embedded_postgres(tmp_path):
        pass
    stale = f"{os.getpid()}\n{cluster}\n1\n5432\n.\n\n  1234 5\nready   \n"
    (cluster / "postmaster.pid").write_text(stale)
    (cluster / ".s.PGSQL.5432.lock").write_text(stale)
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select 1") == 1


async def test_a_killed_initdb_is_repeated(tmp_path: Path) -> None:
    unfinished = tmp_path / "postgres.new"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("15\n")
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select 1") == 1
    assert not unfinished.exists()


async def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    async with embedded_postgres(deep) as url:
        assert await value(url, "select 1") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter a closed folder")
async def test_a_directory_below_a_closed_folder(tmp_path: Path) -> None:
    """As below /root: the account that runs Postgres may not enter the folder."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with embedded_postgres(closed / "data") as url:
        assert await value(url, "select 1") == 1
    async with embedded_postgres(closed / "data") as url:
        assert await value(url, "select 1") == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
async def test_a_cluster_restored_by_root_starts(tmp_path: Path) -> None:
    async with embedded_postgres(tmp_path):
        pass
    for path in [tmp_path / "postgres", *(tmp_path / "postgres").rglob("*")]:
        os.lchown(path, 0, 0)
    async with embedded_postgres(tmp_path) as url:
        assert await value(url, "select 1") == 1


async def test_an_error_of_postgres_is_reported(tmp_path: Path) -> None:
    async with embedded_postgres(tmp_path):
        pass
    with (tmp_path / "postgres" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.RaisesGroup(pytest.RaisesExc(OperatorError, match=r"did not start: .*\(see .*postgres\.log\)")):
        async with embedded_postgres(tmp_path):
            pass


async def test_a_folder_that_is_no_cluster_stays(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(OperatorError, match="is not a Postgres cluster"):
        async with embedded_postgres(tmp_path):
            pass
    assert (tmp_path / "postgres" / "thesis.txt").exists()


async def test_a_cluster_of_another_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(OperatorError, match=r"holds a Postgres 14 cluster, but only .* installed; install Postgres 14"):
        async with embedded_postgres(tmp_path):
            pass


def test_without_processes_there_is_nothing_to_end(tmp_path: Path) -> None:
    end_leftovers(tmp_path)
    assert working_in(tmp_path) == set()


def test_access_follows_the_mode_bits(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o755)
    tmp_path.chmod(0o711)
    nobody = Account(uid=65533, gid=65533)
    reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in tmp_path.parents)
    assert nobody.can_reach(program) == reachable
    tmp_path.chmod(0o700)
    assert not nobody.can_reach(program)


@pytest.mark.skipif(os.geteuid() == 0, reason="root runs it as another user")
def test_another_user_than_root_runs_postgres_itself(tmp_path: Path) -> None:
    assert account_for(tmp_path) is None
