"""Starting: what is imported when, what begins before it is waited for, and the benchmark of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from kubechronicle.ops.bench import start
from kubechronicle.ops.postgres.embedded_postgres import has_cluster, starting_postgres
from kubechronicle.ops.postgres.processes import working_in

HEAVY = ("kubechronicle.http.app", "kubechronicle.actors.store", "cryptography", "prometheus_client", "yaml")
WITH_THE_FIRST = (
    "hypercorn",
    "h2",
    "wsproto",
    "kubechronicle.http.wire.http2.connection",
    "kubechronicle.http.wire.websocket.conversation",
)


def loaded(module: str) -> set[str]:
    """The modules there are after this one was imported."""
    program = f"import {module}, sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


def test_little_is_imported_before_postgres_starts() -> None:
    """Everything else is imported while it does."""
    assert not loaded("kubechronicle.ops.server.serve").intersection(HEAVY)


def test_what_other_connections_take_is_imported_with_the_first_of_them() -> None:
    assert not loaded("kubechronicle.ops.server.replica").intersection(WITH_THE_FIRST)


def test_help_needs_neither_server_nor_database() -> None:
    assert not loaded("kubechronicle.ops.cli").intersection({*HEAVY, "trio", "yaml", "cattrs"})


async def test_a_database_that_was_told_to_start_stops_whoever_waits_for_it(tmp_path: Path) -> None:
    """Nobody does when the block is left at once, or when the settings prove wrong meanwhile."""
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


def test_the_benchmark_starts_fills_starts_again_and_lists() -> None:
    told: list[str] = []
    assert start.main(["--objects", "20", "--runs", "1", "--lists", "2"], told.append) == 0
    figures = {line[:24].strip(): line[24:].strip() for line in told[1:]}
    assert list(figures) == [
        "ready, new directory",
        "memory, empty",
        "filled with 20",
        "memory, filled",
        "ready, full directory",
        "memory, started again",
        "2 lists",
        "memory, after the lists",
    ]
    for what, seen in figures.items():
        assert seen.endswith(")") and "MiB (server at most" in seen if what.startswith("memory") else " s" in seen
    assert "(of 1: " in figures["ready, full directory"]
    assert "(of 2: " in figures["2 lists"]
