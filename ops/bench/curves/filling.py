"""Data directories filled once and kept, so that measuring begins at once: ``--fill --kept DIR``.

    DIR/objects-N/data    a server's data directory with N ConfigMaps of 1 KB
    DIR/log-N/data        one whose log has N revisions

Each is a copy, in passing, of the one that is filled up to the farthest place. Only what is measured is kept in memory:
filling appends to the log of a Postgres that no server uses meanwhile.
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
from kubechronicle.ops.bench.own_server import Place
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

Part: TypeAlias = Callable[[Path, int, int], Awaitable[None]]
"""Fills a data directory from one place of its curve up to another."""

# As autovacuum does, sooner or later; it is not to come by while something is measured.
TIDY = "set statement_timeout = 0; vacuum (analyze) kubechronicle.log; vacuum (analyze) kubechronicle.live"


def fill(curve: str, bench: Bench, places: Sequence[int]) -> None:
    """Those which are not there yet. SystemExit: a curve that needs none."""
    if curve not in MAKERS:
        raise SystemExit(f"nothing is kept for {curve}; --fill knows {', '.join(MAKERS)}")
    assert bench.kept is not None
    wanted = sorted(x for x in places if not (bench.kept / f"{curve}-{x}").exists())
    if wanted:
        bench.kept.mkdir(parents=True, exist_ok=True)
        bench.kept.chmod(0o755)
        unfinished = bench.kept / f"{curve}-unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # of a filling that was given up
        with bench.place(unfinished) as place:
            _in_parts(curve, place, bench.kept, wanted, MAKERS[curve](place, wanted))


def _objects(place: Place, places: Sequence[int]) -> Part:
    with place.serving() as running:
        running.put(mode="fill", namespace=NAMESPACE, count=1, size=1024)

    async def part(data_dir: Path, first: int, until: int) -> None:
        await copies.fill(data_dir, namespace=NAMESPACE, count=until)

    return part


def _log(place: Place, places: Sequence[int]) -> Part:
    pace = history_log.Pace.up_to_now(revisions=places[-1], days=LOG_DAYS)

    async def part(data_dir: Path, first: int, until: int) -> None:
        async with embedded_postgres(data_dir) as url:
            await migrate(url)
            async with open_session(url) as session:
                await history_log.extend(session, first=first, until=until, objects=LOG_OBJECTS, pace=pace)

    return part


def _in_parts(curve: str, place: Place, kept: Path, places: Sequence[int], part: Part) -> None:
    first, home = 0, place.data_dir.parent
    for x in places:
        print(f"{curve}: filling up to {x:,} …", file=sys.stderr, flush=True)
        trio.run(part, place.data_dir, first, x)
        trio.run(_tidy, place.data_dir)
        if x != places[-1]:
            subprocess.run(["cp", "-a", "--reflink=auto", home, kept / f"{curve}-{x}"], check=True)
        first = x
    home.rename(kept / f"{curve}-{places[-1]}")


MAKERS: Mapping[str, Callable[[Place, Sequence[int]], Part]] = {"objects": _objects, "log": _log}


async def _tidy(data_dir: Path) -> None:
    async with embedded_postgres(data_dir) as url, open_session(url) as session:
        for statement in TIDY.split("; "):
            await session.execute(statement)
