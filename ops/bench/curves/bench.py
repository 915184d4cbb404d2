"""The parts that all curves share: options, workspaces, and loads that yield a point."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubechronicle.ops.bench import own_server
from kubechronicle.ops.bench.curves import points
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.measure import Load, LoadError
from kubechronicle.ops.bench.own_server import Measured, Running, Workspace
from kubechronicle.ops.development.server_process import cpu_seconds

EVENTS_PER_SECOND = 50
QUIET = 0.05  # CPU seconds per second of a server at rest
REST_TIMEOUT = 30.0  # seconds


@dataclass(slots=True, kw_only=True)
class Bench:
    """The options of a measurement.

    ``seconds``: length of each load
    ``warm``: seconds of load before it
    ``budget``: seconds per curve
    ``kept``: the folder of the data directories filled before (filling.py)
    ``verify_to``: length of the longest log that is verified
    ``skipped``: positions that were skipped, with the reason
    """

    load: Load
    seconds: float
    warm: float
    budget: float
    directory: Path | None = None
    kept: Path | None = None
    verify_to: int | None = None
    settle: float = own_server.SETTLE_SECONDS
    skipped: list[str] = field(default_factory=list)

    def workspace(self, kept: Path | None = None) -> AbstractContextManager[Workspace]:
        """Return a new workspace, or that in ``kept``."""
        return own_server.workspace(self.load, directory=self.directory, kept=kept, settle=self.settle)

    def filled(self, curve: str, x: int) -> Path | None:
        """Return the folder of a data directory filled before, None without one."""
        folder = self.kept and self.kept / f"{curve}-{x}"
        return folder if folder is not None and folder.exists() else None

    def within(self, curve: str, positions: Iterable[int], cost: Callable[[int], float]) -> Iterator[int]:
        """Yield the positions for which there is time. ``cost``: the estimated seconds of one position."""
        end = time.monotonic() + self.budget
        for x in positions:
            if time.monotonic() + cost(x) > end:
                self.skipped.append(f"{curve} at {x:,}: takes longer than the rest of {self.budget:,.0f} s")
                continue
            print(f"{curve}: {x:,} …", file=sys.stderr, flush=True)
            yield x

    def measure(self, running: Running, curve: str, x: int, work: str, **flags: Any) -> Point:
        """Run one load and return its point. The point of a failed load has the reason and no figures."""
        try:
            measured = running.run_load(**{"seconds": self.seconds, "warm": self.warm, **flags})
        except LoadError as error:
            return Point(curve=curve, x=x, work=work, errors=1, problem=str(error).split("\n", 1)[0])
        return point_of(measured, curve, x, work, workers=running.workers)


def point_of(measured: Measured, curve: str, x: int, work: str, *, workers: int = 1) -> Point:
    seen, usage = measured.seen, measured.usage
    cpu = measured.cpu_us()
    return Point(
        curve=curve,
        x=x,
        work=work,
        cpu_us=(cpu["server"], cpu["postgres"]),
        rate=seen["per_second"],
        p50=seen.get("ms", {}).get("p50"),
        p99=seen.get("ms", {}).get("p99"),
        memory=_memory(measured.memory),
        cores={group: usage.cores(group) for group in ("server", "postgres", "load")},
        disk=usage.disk,
        end=usage.bottleneck(workers=workers),
        errors=seen["errors"],
        problem=seen.get("problem", ""),
    )


def _memory(groups: Mapping[str, float]) -> tuple[float, float]:
    return groups["server"], groups["postgres"]


def at_rest(running: Running, curve: str, x: int) -> Point:
    """Wait until the server is at rest, and return its memory and start-up time.

    After a start, a server still fills the garbage collector's graph with all objects.
    """
    end = time.monotonic() + REST_TIMEOUT
    busy, now = True, cpu_seconds(running.processes())
    while busy and time.monotonic() < end:
        time.sleep(1)
        before, now = now, cpu_seconds(running.processes())
        busy = now - before > QUIET
    used = _memory(running.memory())
    return Point(curve=curve, x=x, work=points.AT_REST, memory=used, ready=running.server.ready_after)


def get(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.measure(running, curve, x, work, mode="get", namespace="bench-get", size=4096, conns=connections)


def create(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.measure(running, curve, x, work, mode="create", namespace="bench-create", size=1024, conns=connections)


def event(bench: Bench, running: Running, curve: str, x: int, work: str, watchers: int) -> Point:
    """Create objects at a fixed rate. Each creation is sent to every watcher."""
    load = {"mode": "watch", "watchers": watchers, "rate": EVENTS_PER_SECOND, "size": 1024}
    return bench.measure(running, curve, x, work, namespace=f"bench-watch-{watchers}-{x}", **load)
