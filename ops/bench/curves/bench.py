"""What all curves are measured with: how long, where, and a load as a point."""

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
from kubechronicle.ops.bench.own_server import Measured, Place, Running
from kubechronicle.ops.development.server_process import cpu_seconds

EVENTS_A_SECOND = 50
QUIET = 0.05  # seconds of CPU in a second
LONGEST_REST = 30.0  # seconds of waiting for it


@dataclass(slots=True, kw_only=True)
class Bench:
    """How long to measure, and until when. ``seconds``: of each load; ``budget``: of a whole curve; ``kept``: where
    data directories are that were filled before (filling.py); ``verify_to``: the longest log that is verified."""

    load: Load
    seconds: float
    warm: float
    budget: float
    directory: Path | None = None
    kept: Path | None = None
    verify_to: int | None = None
    settle: float = own_server.SETTLE_SECONDS
    left_out: list[str] = field(default_factory=list)

    def place(self, kept: Path | None = None) -> AbstractContextManager[Place]:
        """A new place, or the one that is ``kept``."""
        return own_server.place(self.load, directory=self.directory, kept=kept, settle=self.settle)

    def filled(self, curve: str, x: int) -> Path | None:
        """Where that was filled before; None if it was not."""
        found = self.kept and self.kept / f"{curve}-{x}"
        return found if found is not None and found.exists() else None

    def within(self, curve: str, places: Iterable[int], cost: Callable[[int], float]) -> Iterator[int]:
        """Those for which there is time; ``cost``: what one takes about, in seconds beside the loads."""
        end = time.monotonic() + self.budget
        for x in places:
            if time.monotonic() + cost(x) > end:
                self.left_out.append(f"{curve} at {x:,}: more than is left of {self.budget:,.0f} s")
                continue
            print(f"{curve}: {x:,} …", file=sys.stderr, flush=True)
            yield x

    def put(self, running: Running, curve: str, x: int, work: str, **flags: Any) -> Point:
        """One load as a point; one that failed has its reason and no figures."""
        try:
            measured = running.put(**{"seconds": self.seconds, "warm": self.warm, **flags})
        except LoadError as error:
            return Point(curve=curve, x=x, work=work, errors=1, problem=str(error).split("\n", 1)[0])
        return pointed(measured, curve, x, work, workers=running.workers)


def pointed(measured: Measured, curve: str, x: int, work: str, *, workers: int = 1) -> Point:
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
        memory=memory(measured.memory),
        cores={group: usage.cores(group) for group in ("server", "postgres", "load")},
        disk=usage.disk,
        end=usage.at_its_end(workers=workers),
        errors=seen["errors"],
        problem=seen.get("problem", ""),
    )


def memory(of: Mapping[str, float]) -> tuple[float, float]:
    return of["server"], of["postgres"]


def at_rest(running: Running, curve: str, x: int) -> Point:
    """When what a start leaves for afterwards is done, such as telling the garbage collector of all objects."""
    end = time.monotonic() + LONGEST_REST
    busy, now = True, cpu_seconds(running.processes())
    while busy and time.monotonic() < end:
        time.sleep(1)
        before, now = now, cpu_seconds(running.processes())
        busy = now - before > QUIET
    used = memory(running.memory())
    return Point(curve=curve, x=x, work=points.AT_REST, memory=used, ready=running.server.ready_after)


def get(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.put(running, curve, x, work, mode="get", namespace="bench-get", size=4096, conns=connections)


def create(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.put(running, curve, x, work, mode="create", namespace="bench-create", size=1024, conns=connections)


def event(bench: Bench, running: Running, curve: str, x: int, work: str, watchers: int) -> Point:
    """Creates at a fixed rate, each heard of by so many watchers."""
    load = {"mode": "watch", "watchers": watchers, "rate": EVENTS_A_SECOND, "size": 1024}
    return bench.put(running, curve, x, work, namespace=f"bench-watch-{watchers}-{x}", **load)
