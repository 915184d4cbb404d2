"""Fill data directories once and keep them for later measurements: ``--fill --kept DIR``.

    DIR/objects-N/data    a server's data directory with N ConfigMaps of 1 KB
    DIR/log-N/data        one with a log of N revisions

One directory is filled up to the largest position, and copied at each smaller one. Filling appends directly to the log
of a Postgres without a server.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import trio

from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.ops.bench import copies, history_log
from kubechronicle.ops.bench.curves.bench import Bench
from kubechronicle.ops.bench.curves.lengths import LOG_DAYS, LOG_OBJECTS
from kubechronicle.ops.bench.curves.measuring import NAMESPACE
from kubechronicle.ops.bench.own_server import Workspace
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

Extend: TypeAlias = Callable[[Path, int, int], Awaitable[None]]
"""Fills a data directory from one position of its curve to another."""

# As autovacuum does later; it should not run during a measurement.
VACUUM = "set statement_timeout = 0; vacuum (analyze) kubechronicle.log; vacuum (analyze) kubechronicle.live"


def fill(curve: str, bench: Bench, positions: Sequence[int]) -> None:
    """Fill the missing directories. Raises SystemExit for a curve that needs none."""
    if curve not in FILLERS:
        raise SystemExit(f"curve {curve} needs no filled directories; --fill supports {', '.join(FILLERS)}")
    assert bench.kept is not None
    missing = sorted(x for x in positions if not (bench.kept / f"{curve}-{x}").exists())
    if missing:
        bench.kept.mkdir(parents=True, exist_ok=True)
        bench.kept.chmod(0o755)
        unfinished = bench.kept / f"{curve}-unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted run
        with bench.workspace(unfinished) as workspace:
            _fill_in_steps(curve, workspace, bench.kept, missing, FILLERS[curve](workspace, missing))


def _objects(workspace: Workspace, positions: Sequence[int]) -> Extend:
    with workspace.serving() as running:
        running.run_load(mode="fill", namespace=NAMESPACE, count=1, size=1024)

    async def extend(data_dir: Path, first: int, until: int) -> None:
        await copies.fill(data_dir, namespace=NAMESPACE, count=until)

    return extend


def _log(workspace: Workspace, positions: Sequence[int]) -> Extend:
    pace = history_log.Pace.up_to_now(revisions=positions[-1], days=LOG_DAYS)

    async def extend(data_dir: Path, first: int, until: int) -> None:
        async with embedded_postgres(data_dir) as url:
            await migrate(url)
            async with open_session(url) as session:
                await history_log.extend(session, first=first, until=until, objects=LOG_OBJECTS, pace=pace)

    return extend


def _fill_in_steps(curve: str, workspace: Workspace, kept: Path, positions: Sequence[int], extend: Extend) -> None:
    first, home = 0, workspace.data_dir.parent
    for x in positions:
        print(f"{curve}: filling up to {x:,} …", file=sys.stderr, flush=True)
        trio.run(extend, workspace.data_dir, first, x)
        trio.run(_vacuum, workspace.data_dir)
        if x != positions[-1]:
            subprocess.run(["cp", "-a", "--reflink=auto", home, kept / f"{curve}-{x}"], check=True)
        first = x
    home.rename(kept / f"{curve}-{positions[-1]}")


FILLERS: Mapping[str, Callable[[Workspace, Sequence[int]], Extend]] = {"objects": _objects, "log": _log}


async def _vacuum(data_dir: Path) -> None:
    async with embedded_postgres(data_dir) as url, open_session(url) as session:
        for statement in VACUUM.split("; "):
            await session.execute(statement)
