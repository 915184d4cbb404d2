"""The curves: the server and the loads at each position of an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from kubechronicle.ops.bench import copies
from kubechronicle.ops.bench.curves import lengths, points, servers
from kubechronicle.ops.bench.curves.bench import EVENTS_PER_SECOND, Bench, at_rest, create, event, get
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.own_server import Workspace

BUSY_WATCHERS = 1000  # further watchers receive no events
MAX_LIST = 100_000  # objects in one response: a million would be 1.4 GB
NAMESPACE = "bench-objects"


def objects(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    with ExitStack() as stack:
        workspace: Workspace | None = None

        def cost(x: int) -> float:
            return 10 + x / (25_000 if bench.filled("objects", x) else 2500) + 5 * bench.seconds

        for x in bench.within("objects", positions, cost):
            if filled := bench.filled("objects", x):
                with bench.workspace(filled) as kept:
                    yield from _at_objects(bench, kept, x)
                continue
            if workspace is None:
                workspace = stack.enter_context(bench.workspace())
                with workspace.serving() as running:
                    yield at_rest(running, "objects", 0)
                    running.run_load(mode="fill", namespace=NAMESPACE, count=1, size=1024)
            trio.run(_copy, workspace.data_dir, x)
            yield from _at_objects(bench, workspace, x)


def _at_objects(bench: Bench, workspace: Workspace, x: int) -> Iterator[Point]:
    with workspace.serving() as running:
        yield at_rest(running, "objects", x)
        yield get(bench, running, "objects", x, points.GET, 16)
        flags = {"mode": "list", "namespace": NAMESPACE}
        if x >= 500:
            page = {"query": "limit=500", "count": 500}
            yield bench.measure(running, "objects", x, points.PAGE, **flags, **page)
        if x <= MAX_LIST:
            yield bench.measure(running, "objects", x, points.ALL, **flags, count=x)
        yield create(bench, running, "objects", x, points.CREATE, 16)
        yield event(bench, running, "objects", x, points.EVENT_100, 100)


async def _copy(data_dir: Path, count: int) -> None:
    await copies.fill(data_dir, namespace=NAMESPACE, count=count)


def watchers(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    with bench.workspace() as workspace, workspace.serving() as running:
        yield at_rest(running, "watchers", 0)
        for x in bench.within("watchers", positions, lambda x: 2 + x / 100 + bench.seconds):
            busy = min(x, BUSY_WATCHERS)
            load = {"mode": "fanout", "watchers": busy, "idle": x - busy, "rate": EVENTS_PER_SECOND, "size": 1024}
            yield bench.measure(running, "watchers", x, points.EVENT, namespace=f"bench-watch-{x}", **load)


def writers(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    with bench.workspace() as workspace, workspace.serving() as running:
        for x in bench.within("writers", positions, lambda x: 2 + bench.seconds):
            yield create(bench, running, "writers", x, points.WRITERS, x)


def workers(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    """Measure one server with several processes. Watchers receive writes of all processes."""
    with bench.workspace() as workspace:
        for x in bench.within("workers", positions, lambda x: 10 + x + 3 * bench.seconds):
            with workspace.serving(workers=x) as running:
                yield at_rest(running, "workers", x)
                yield get(bench, running, "workers", x, points.GET_64, 64)
                yield create(bench, running, "workers", x, points.CREATE_64, 64)
                yield event(bench, running, "workers", x, points.EVENT_100, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``upto``: the largest position by default."""

    measure: Callable[[Bench, Sequence[int]], Iterator[Point]]
    positions: tuple[int, ...]
    upto: int


CURVES: Mapping[str, Curve] = {
    "objects": Curve(measure=objects, positions=(1000, 10_000, 90_000, 100_000, 300_000, 1_000_000), upto=100_000),
    "watchers": Curve(measure=watchers, positions=(1, 10, 100, 1000, 5000), upto=5000),
    "writers": Curve(measure=writers, positions=(1, 4, 16, 64, 256), upto=256),
    "log": Curve(measure=lengths.log, positions=(10_000, 100_000, 1_000_000, 3_000_000, 10_000_000), upto=1_000_000),
    "workers": Curve(measure=workers, positions=(1, 2, 3, 4), upto=4),
    "replicas": Curve(measure=servers.replicas, positions=(1, 2, 3, 4), upto=4),
}
