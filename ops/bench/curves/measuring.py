"""The curves: what is put on which server at each place of the axis."""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio

from kubechronicle.ops.bench import copies, history, history_log, own_server
from kubechronicle.ops.bench.curves import points
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.measure import Load, LoadError
from kubechronicle.ops.bench.own_server import Measured, Place, Running
from kubechronicle.ops.bench.usage import between

BUSY_WATCHERS = 1000  # those beyond hear nothing
EVENTS_A_SECOND = 50
LONGEST_LIST = 100_000  # objects in one answer: a million would be 1.4 GB
LOG_OBJECTS = 5_000  # the log of any length is of as many things
LOG_DAYS = 0.5  # younger than whatever retention would take away while we measure
LOG_BYTES = 4_000  # of disk for each revision: tables and indexes take half of it, the write-ahead log some
NAMESPACE = "bench-objects"


@dataclass(slots=True, kw_only=True)
class Bench:
    """How long to measure, and until when. ``seconds``: of each load; ``budget``: of a whole curve; ``kept``: where
    data directories are that were filled before (filling.py)."""

    load: Load
    seconds: float
    warm: float
    budget: float
    directory: Path | None = None
    kept: Path | None = None
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
    used = memory(running.memory())
    return Point(curve=curve, x=x, work=points.AT_REST, memory=used, ready=running.server.ready_after)


def objects(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with bench.place() as place:
        with place.serving() as running:
            yield at_rest(running, "objects", 0)
            running.put(mode="fill", namespace=NAMESPACE, count=1, size=1024)
        for x in bench.within("objects", places, lambda x: 10 + x / 2500 + 4 * bench.seconds):
            trio.run(_copy, place.data_dir, x)
            with place.serving() as running:
                yield at_rest(running, "objects", x)
                yield _get(bench, running, "objects", x, points.GET, 16)
                flags = {"mode": "list", "namespace": NAMESPACE}
                if x >= 500:
                    page = {"query": "limit=500", "count": 500}
                    yield bench.put(running, "objects", x, points.PAGE, **flags, **page)
                if x <= LONGEST_LIST:
                    yield bench.put(running, "objects", x, points.ALL, **flags, count=x)
                yield _create(bench, running, "objects", x, points.CREATE, 16)


async def _copy(data_dir: Path, count: int) -> None:
    await copies.fill(data_dir, namespace=NAMESPACE, count=count)


def _get(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.put(running, curve, x, work, mode="get", namespace="bench-get", size=4096, conns=connections)


def _create(bench: Bench, running: Running, curve: str, x: int, work: str, connections: int) -> Point:
    return bench.put(running, curve, x, work, mode="create", namespace="bench-create", size=1024, conns=connections)


def watchers(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with bench.place() as place, place.serving() as running:
        yield at_rest(running, "watchers", 0)
        for x in bench.within("watchers", places, lambda x: 2 + x / 100 + bench.seconds):
            busy = min(x, BUSY_WATCHERS)
            load = {"mode": "fanout", "watchers": busy, "idle": x - busy, "rate": EVENTS_A_SECOND, "size": 1024}
            yield bench.put(running, "watchers", x, points.EVENT, namespace=f"bench-watch-{x}", **load)


def writers(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    with bench.place() as place, place.serving() as running:
        for x in bench.within("writers", places, lambda x: 2 + bench.seconds):
            yield _create(bench, running, "writers", x, points.WRITERS, x)


def log(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    for x in bench.within("log", places, lambda x: 15 + x / 7000 + 4 * bench.seconds):
        free = shutil.disk_usage(bench.directory or tempfile.gettempdir()).free
        if free < x * LOG_BYTES:
            bench.left_out.append(f"log at {x:,}: {x * LOG_BYTES / 2**30:,.0f} GiB of disk wanted")
            continue
        # Half a day: younger than whatever retention would take away while we measure.
        facts = argparse.Namespace(revisions=x, objects=min(LOG_OBJECTS, x // 2), days=0.5)
        with bench.place() as place:
            known = trio.run(history.prepare, place.data_dir, facts)
            with place.serving() as running:
                yield at_rest(running, "log", x)
                yield _get(bench, running, "log", x, points.GET, 16)
                yield _create(bench, running, "log", x, points.CREATE, 16)
                yield asked(bench, running, x, points.PAST, _past_path(known))
                yield asked(bench, running, x, points.TIMELINE, _timeline_path(known))


def _node(facts: history.Facts, choice: random.Random) -> str:
    """Nodes are the first of the things a log is of."""
    return f"node-{choice.randrange(max(1, facts.slots * history_log.KINDS[0].share // 1000)):06}"


def _past_path(facts: history.Facts) -> Callable[[random.Random], str]:
    """A revision by which everything has been there: a log begins with what servers make for themselves."""
    first = (facts.slots + facts.revisions) // 2
    return lambda choice: f"/history/at/{choice.randint(first, facts.revisions)}/api/v1/nodes/{_node(facts, choice)}"


def _timeline_path(facts: history.Facts) -> Callable[[random.Random], str]:
    def path(choice: random.Random) -> str:
        selector = quote(f"object.kind=Node,object.name={_node(facts, choice)}")
        return f"{history.HISTORY}/clusterrevisions?content=diff&limit=20&fieldSelector={selector}"

    return path


def asked(bench: Bench, running: Running, x: int, work: str, path: Callable[[random.Random], str]) -> Point:
    """Requests one after another over one connection, each for something else."""
    client, choice, times = history.Client(running.server), random.Random(x), list[float]()
    client.timed(path(choice))
    running.sampler()
    end = time.monotonic() + bench.seconds
    while time.monotonic() < end:
        times.append(client.timed(path(choice))[0])
    running.sampler()
    before, after = running.sampler.samples[-2:]
    usage = between(before, after)
    seen = {
        "operations": len(times),
        "per_second": len(times) / usage.seconds,
        "ms": {"p50": statistics.median(times), "p99": sorted(times)[len(times) * 99 // 100]},
        "errors": 0,
    }
    return pointed(Measured(usage=usage, memory=after.memory, seen=seen), "log", x, work)


def replicas(bench: Bench, places: Sequence[int]) -> Iterator[Point]:
    """Workers of one server, which share its port and database and nothing else; a watcher hears of a write by any."""
    with bench.place() as place:
        for x in bench.within("replicas", places, lambda x: 10 + x + 3 * bench.seconds):
            with place.serving(workers=x) as running:
                yield at_rest(running, "replicas", x)
                yield _get(bench, running, "replicas", x, points.GET_64, 64)
                yield _create(bench, running, "replicas", x, points.CREATE_64, 64)
                load = {"mode": "watch", "watchers": 100, "rate": EVENTS_A_SECOND, "size": 1024}
                yield bench.put(running, "replicas", x, points.EVENT_100, namespace=f"bench-watch-{x}", **load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``upto``: the farthest place, unless another is asked for."""

    measure: Callable[[Bench, Sequence[int]], Iterator[Point]]
    places: tuple[int, ...]
    upto: int


CURVES: Mapping[str, Curve] = {
    "objects": Curve(measure=objects, places=(1000, 10_000, 90_000, 100_000, 1_000_000), upto=100_000),
    "watchers": Curve(measure=watchers, places=(1, 10, 100, 1000, 5000), upto=5000),
    "writers": Curve(measure=writers, places=(1, 4, 16, 64, 256), upto=256),
    "log": Curve(measure=log, places=(10_000, 100_000, 1_000_000, 10_000_000), upto=1_000_000),
    "replicas": Curve(measure=replicas, places=(1, 2, 3, 4), upto=4),
}
