"""The start: the order of imports, the database that starts meanwhile, and the benchmark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from kubechronicle.ops.bench import start
from kubechronicle.ops.postgres.embedded_postgres import has_cluster, starting_postgres
from kubechronicle.ops.postgres.processes import working_in

HEAVY = ("kubechronicle.http.app", "kubechronicle.actors.store", "cryptography", "prometheus_client", "yaml")
LOADED_AFTER_THE_START = (
    "hypercorn",
    "h2",
    "wsproto",
    "kubechronicle.http.wire.http2.connection",
    "kubechronicle.http.streaming.websocket",
)


def loaded(module: str) -> set[str]:
    """Return the modules that are loaded after the import of this one."""
    program = f"import {module}, sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


def test_little_is_imported_before_postgres_starts() -> None:
    """The rest is imported while Postgres starts."""
    assert not loaded("kubechronicle.ops.server.serve").intersection(HEAVY)


def test_modules_of_other_protocols_are_imported_after_the_start() -> None:
    assert not loaded("kubechronicle.ops.server.replica").intersection(LOADED_AFTER_THE_START)


def test_help_imports_neither_server_nor_database() -> None:
    assert not loaded("kubechronicle.ops.commands").intersection({*HEAVY, "trio", "yaml", "cattrs"})


def test_history_commands_import_nothing_of_the_server() -> None:
    """People wait for them."""
    of_server = ("kubechronicle.actors", "kubechronicle.eventlog", "kubechronicle.http", "kubechronicle.ops.settings")
    outgoing = "kubechronicle.http.outgoing"
    shared = {"kubechronicle.http", outgoing}
    shared |= {f"{outgoing}.{module}" for module in ("answers", "kubeconfig", "remote_server")}
    for module in ("kubechronicle.ops.cli", "kubechronicle.ops.client.commands.log"):
        imported = loaded(module)
        assert not {name for name in imported if name.startswith(of_server)} - shared
        assert "trio" not in imported


async def test_a_starting_database_stops_when_the_block_ends(tmp_path: Path) -> None:
    """Also when no task waits for it: the block is left at once, or a setting is wrong."""
    assert not has_cluster(tmp_path)
    async with starting_postgres(tmp_path) as running:
        assert (await running()).startswith("postgresql://")
    assert has_cluster(tmp_path)
    async with starting_postgres(tmp_path):
        pass
    assert not working_in(tmp_path / "postgres")
    arguments = ("serve", "--data-dir", str(tmp_path), "--secure-port", "0", "--controllers", "nonsense")
    done = await trio.run_process(
        [sys.executable, "-m", "kubechronicle.ops.cli", *arguments], capture_stderr=True, check=False
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"there is no control loop 'nonsense'" in done.stderr
    assert not working_in(tmp_path / "postgres")


def test_the_benchmark_starts_fills_restarts_and_lists() -> None:
    lines: list[str] = []
    assert start.main(["--objects", "20", "--runs", "1", "--lists", "2"], lines.append) == 0
    measurements = {line[:24].strip(): line[24:].strip() for line in lines[1:]}
    assert list(measurements) == [
        "ready, new directory",
        "memory, empty",
        "filled with 20",
        "memory, filled",
        "ready, full directory",
        "memory, started again",
        "2 lists",
        "memory, after the lists",
    ]
    for label, value in measurements.items():
        assert value.endswith(")") and "MiB (server at most" in value if label.startswith("memory") else " s" in value
    assert "(of 1: " in measurements["ready, full directory"]
    assert "(of 2: " in measurements["2 lists"]
